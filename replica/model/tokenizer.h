// Tokenizer: text to token ids and back, byte-level BPE. Text of a user is always plain: the words
// "<|im_end|>" typed into a message are encoded as characters; only where the caller says so (a raw
// completion prompt, a template's own text) do control tokens count. DecodeBytes(Encode(x)) == x where the
// vocabulary has all bytes of x; bytes that it lacks (SmolLM2: some control characters) are dropped, as the
// reference does. Immutable after Create; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "replica/model/bpe.h"
#include "replica/model/pretokenizer.h"

namespace kvring::replica {

/// A vocabulary as a model file gives it (GGUF names in brackets).
struct TokenizerSpec {
  enum class TokenType : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };

  std::string model;                // "gpt2": byte-level BPE [tokenizer.ggml.model]
  std::string pre;                  // rule set of the pre-tokenizer [tokenizer.ggml.pre]
  std::vector<std::string> tokens;  // in the byte-to-character alphabet of GPT-2 [tokenizer.ggml.tokens]
  std::vector<int32_t> types;       // TokenType; empty: all normal [tokenizer.ggml.token_type]
  std::vector<std::string> merges;  // "left right", best first [tokenizer.ggml.merges]
  TokenId bos = -1;                 // -1: none
  TokenId eos = -1;
  TokenId eot = -1;  // end of turn, another stop token
  bool add_bos = false;
};

enum class ControlTokens { kAsText, kParse };

class Tokenizer {
 public:
  /// Errors name the token or merge by index: byte tokens that are not <0x00> … <0xFF> or occur twice
  /// (MOD-06), duplicate tokens, merges of unknown tokens, ids outside the vocabulary, an unknown model or
  /// pre-tokenizer.
  static absl::StatusOr<Tokenizer> Create(const TokenizerSpec& spec);

  /// Appends the tokens of `text`. No BOS is added. Bytes that are not UTF-8 are encoded one by one.
  void Encode(std::string_view text, ControlTokens control, std::vector<TokenId>& out) const;
  std::vector<TokenId> Encode(std::string_view text, ControlTokens control) const;

  /// The longest control token that `text` starts with, or -1.
  TokenId ControlAt(std::string_view text) const;

  /// The bytes that a token stands for; control tokens give their name. `id` in [0, vocab_size).
  const std::string& Bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  bool IsControl(TokenId id) const { return control_[static_cast<size_t>(id)]; }
  /// Where `token`, one of text's tokens in order, ends in `text`, if the one before ended at `at`; steps
  /// over dropped bytes.
  size_t EndOf(TokenId token, std::string_view text, size_t at) const;
  std::string DecodeBytes(const std::vector<TokenId>& ids) const;

  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }
  TokenId bos() const { return bos_; }
  bool add_bos() const { return add_bos_; }
  /// Tokens that end an answer.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }

 private:
  explicit Tokenizer(Pretokenizer pretokenizer) : pretokenizer_(std::move(pretokenizer)) {}

  absl::Status ReadTokens(const TokenizerSpec& spec);
  absl::Status ReadByteToken(const TokenizerSpec& spec, size_t index);
  absl::Status ReadMerges(const TokenizerSpec& spec);
  absl::Status ReadSpecialIds(const TokenizerSpec& spec);
  void EncodePlain(std::string_view text, std::vector<TokenId>& out) const;
  void EncodePiece(std::string_view piece, std::vector<TokenId>& out) const;

  // A token that is found in text as a whole, before pre-tokenization.
  struct Added {
    std::string text;
    TokenId id;
    bool control;
  };
  const Added* AddedAt(std::string_view text, ControlTokens control) const;
  // The first added token in `text` and its offset.
  const Added* FindAdded(std::string_view text, ControlTokens control, size_t& at) const;

  Pretokenizer pretokenizer_;
  BpeMerges merges_;
  std::vector<std::string> bytes_;
  std::vector<bool> control_;
  absl::flat_hash_map<std::string, TokenId> ids_;  // by token text in the file's alphabet
  std::array<TokenId, 256> byte_symbol_{};         // token of a single byte, -1: none
  std::array<std::vector<Added>, 256> added_;      // by first byte, longest first
  TokenId bos_ = -1;
  bool add_bos_ = false;
  std::vector<TokenId> stop_tokens_;
};

}  // namespace kvring::replica
