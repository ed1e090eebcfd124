// GPT-2's alphabet: each of the 256 bytes is written as one printable character, so that vocabularies are
// plain text. Printable ASCII and Latin-1 stand for themselves; the other 68 bytes are U+0100 … U+0143 in
// order. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kvring::replica {

/// The bytes that `token` stands for. Characters outside the alphabet keep their UTF-8 bytes.
std::string BytesOfAlphabet(std::string_view token);
/// The reverse: bytes written in the alphabet.
std::string AlphabetOfBytes(std::string_view bytes);

}  // namespace kvring::replica
