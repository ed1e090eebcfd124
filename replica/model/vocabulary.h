// Vocabulary: the tokens of a model: text to id, id to bytes, which of them are control tokens, and those
// that are found in text as a whole. Control tokens have no text that could be reached by merging: only
// ControlAt and FindAdded know them. User-defined tokens of the forms that turns of a chat are made of
// ("<|...|>", "<start_of_turn>") are control tokens too, whatever their file says. Immutable after Create;
// thread-safe.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "replica/model/tokenizer_spec.h"

namespace kvring::replica {

enum class ControlTokens { kAsText, kParse };

class Vocabulary {
 public:
  /// Errors name the token by index: byte tokens that are not <0x00> … <0xFF> or occur twice (MOD-06),
  /// duplicate tokens, tokens above kMaxTokenBytes, types that do not match the tokens.
  static absl::StatusOr<Vocabulary> Create(const TokenizerSpec& spec);

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  /// The token with this text in the file's alphabet, or -1.
  TokenId Find(std::string_view text) const;
  /// The token of a single byte, or -1.
  TokenId OfByte(char byte) const { return of_byte_[static_cast<uint8_t>(byte)]; }
  /// Whether every byte has a token.
  bool has_all_bytes() const { return has_all_bytes_; }
  const std::string& Bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  bool IsControl(TokenId id) const { return control_[static_cast<size_t>(id)]; }
  /// Whether this is the name of a control token or of a byte: no merge of text makes one.
  bool IsNeverText(std::string_view token) const;

  /// A token that is found in text as a whole, before pre-tokenization.
  struct Added {
    std::string text;
    TokenId id;
    bool control;
  };
  /// The first of them in `text`, the longest at its place, and its offset; null if there is none.
  const Added* FindAdded(std::string_view text, ControlTokens control, size_t& at) const;
  /// The longest control token that `text` starts with, or -1.
  TokenId ControlAt(std::string_view text) const;

 private:
  Vocabulary() = default;
  absl::Status Add(const TokenizerSpec& spec, size_t index, TokenType type);
  absl::Status AddByte(const TokenizerSpec& spec, size_t index);
  absl::Status AddNormal(const TokenizerSpec& spec, size_t index);
  void AddWhole(const TokenizerSpec& spec, size_t index, bool control);
  const Added* AddedAt(std::string_view text, ControlTokens control) const;

  std::vector<std::string> bytes_;
  std::vector<bool> control_;
  absl::flat_hash_map<std::string, TokenId> ids_;
  std::array<TokenId, 256> of_byte_{};
  bool has_all_bytes_ = false;
  std::array<std::vector<Added>, 256> added_;  // by first byte, longest first
};

/// Longer tokens are no vocabulary that could be meant.
constexpr size_t kMaxTokenBytes = 4096;

/// "▁": how SentencePiece writes a space.
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

}  // namespace kvring::replica
