// TokenizerSpec: a vocabulary and its rules as a model file gives them, whichever format that is: GGUF
// (gguf_text.h) or tokenizer.json (hf_tokenizer.h). Plain values; Tokenizer::Create checks them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace kvring::replica {

enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,  // never encoded, no text
  kByte = 6
};

/// How token texts stand for bytes.
enum class TokenAlphabet {
  kBytes,         // GPT-2's alphabet: a character per byte (byte_alphabet.h)
  kSentencePiece  // UTF-8 with U+2581 for a space; <0x00> … <0xFF> for bytes of characters without a token
};

/// Where Encode puts a space that the text does not have.
enum class PrefixSpace {
  kNone,
  kAlways,    // in front of every stretch between control tokens (SentencePiece; the Prepend normalizer)
  kMissing,   // the same, if the stretch does not begin with one (Metaspace "always", ByteLevel's option)
  kFirstOnly  // kMissing at the beginning of the whole text alone (Metaspace "first")
};

struct TokenizerSpec {
  std::string file;  // stands in front of errors
  TokenAlphabet alphabet = TokenAlphabet::kBytes;
  std::vector<std::string> tokens;  // by id, in the alphabet
  std::vector<int32_t> types;       // TokenType; empty: all normal
  /// Merges, best first; ranks[i] orders them where several are equally good (the leftmost then goes first),
  /// else empty.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<int32_t> ranks;
  /// Expressions of the pre-tokenizer (pretokenizer.h), applied in turn.
  std::vector<std::string> splits;
  PrefixSpace prefix_space = PrefixSpace::kNone;
  bool nfc = false;            // text is composed first (Unicode NFC)
  bool whole_words = false;    // a piece that is a token is not merged ("ignore_merges", Llama 3)
  bool fuse_unknown = false;   // neighbouring unknown characters are one token
  TokenId unknown = -1;        // -1: what has no token is dropped
  TokenId bos = -1;            // -1: none
  std::vector<TokenId> stops;  // tokens that end an answer, the template's eos_token first
  bool add_bos = false;
};

}  // namespace kvring::replica
