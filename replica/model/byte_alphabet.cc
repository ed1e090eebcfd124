#include "replica/model/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace kvring::replica {
namespace {

bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<int, 256> character_of{};
  std::array<int, 0x144> byte_of{};

  Alphabet() {
    byte_of.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int character = StandsForItself(byte) ? byte : next++;
      character_of[static_cast<size_t>(byte)] = character;
      byte_of[static_cast<size_t>(character)] = byte;
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

// All characters of the alphabet are below U+0144: one byte of UTF-8, or two that start with C2 … C5.
std::string BytesOfAlphabet(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    const auto first = static_cast<uint8_t>(token[i]);
    size_t character = first;
    size_t length = 1;
    if (first >= 0xC2 && first <= 0xC5 && i + 1 < token.size()) {
      character = (first & 0x1Fu) << 6 | (static_cast<uint8_t>(token[i + 1]) & 0x3Fu);
      length = 2;
    }
    const int byte = character < TheAlphabet().byte_of.size() && (first < 0x80 || length == 2)
                         ? TheAlphabet().byte_of[character]
                         : -1;
    if (byte >= 0) {
      out += static_cast<char>(byte);
    } else {
      out.append(token.substr(i, length));
    }
    i += length - 1;
  }
  return out;
}

std::string AlphabetOfBytes(std::string_view bytes) {
  std::string out;
  for (char c : bytes) {
    const int character = TheAlphabet().character_of[static_cast<uint8_t>(c)];
    if (character < 0x80) {
      out += static_cast<char>(character);
    } else {
      out += static_cast<char>(0xC0 | character >> 6);
      out += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return out;
}

}  // namespace kvring::replica
