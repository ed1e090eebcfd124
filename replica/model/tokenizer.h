// Tokenizer: text to token ids and back: byte-level BPE and SentencePiece BPE (spaces as U+2581, bytes for
// what has no token). Text of a user is always plain: the words "<|im_end|>" typed into a message are encoded
// as characters; only where the caller says so (a raw completion prompt, a template's own text) do control
// tokens count. DecodeBytes(Encode(x)) == x where the vocabulary has all of x and x is composed where the
// model wants that; what it lacks (SmolLM2: some control characters) is dropped or becomes the unknown token,
// as the reference (Hugging Face tokenizers) does. Immutable after Create; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "replica/model/bpe.h"
#include "replica/model/pretokenizer.h"
#include "replica/model/tokenizer_spec.h"
#include "replica/model/vocabulary.h"

namespace kvring::replica {

/// Where a stretch of text stands: some models put a space in front of a text that begins.
enum class TextPlace { kBeginning, kBehindTokens };

class Tokenizer {
 public:
  /// Errors name the token or merge by index: those of Vocabulary, merges of unknown tokens, ids outside the
  /// vocabulary, an expression that is none. A merge that would make a control or byte token is left out:
  /// text never becomes one.
  static absl::StatusOr<Tokenizer> Create(const TokenizerSpec& spec);

  /// Appends the tokens of `text`. No BOS is added. Bytes that are not UTF-8 are encoded one by one.
  void Encode(std::string_view text, ControlTokens control, TextPlace place, std::vector<TokenId>& out) const;
  std::vector<TokenId> Encode(std::string_view text, ControlTokens control,
                              TextPlace place = TextPlace::kBeginning) const;

  /// The longest control token that `text` starts with, or -1.
  TokenId ControlAt(std::string_view text) const { return vocabulary_.ControlAt(text); }

  /// The bytes that a token stands for; control tokens give their name. `id` in [0, vocab_size).
  const std::string& Bytes(TokenId id) const { return vocabulary_.Bytes(id); }
  bool IsControl(TokenId id) const { return vocabulary_.IsControl(id); }
  /// Where `token`, one of text's tokens in order, ends in `text`, if the one before ended at `at`. Steps
  /// over dropped bytes and inserted spaces; the end of `text` where the token's bytes are not found, since
  /// then they were made from text that reads otherwise.
  size_t EndOf(TokenId token, std::string_view text, size_t at) const;
  /// The text of tokens that Encode made; a space that it put in front is no part of it.
  std::string DecodeBytes(std::span<const TokenId> ids, TextPlace place = TextPlace::kBeginning) const;

  int32_t vocab_size() const { return vocabulary_.size(); }
  TokenId bos() const { return bos_; }
  bool add_bos() const { return add_bos_; }
  /// Tokens that end an answer, the one that a template means by eos_token first.
  const std::vector<TokenId>& stop_tokens() const { return stop_tokens_; }

 private:
  Tokenizer(Pretokenizer pretokenizer, Vocabulary vocabulary)
      : pretokenizer_(std::move(pretokenizer)), vocabulary_(std::move(vocabulary)) {}

  absl::Status ReadMerges(const TokenizerSpec& spec);
  absl::Status ReadSpecialIds(const TokenizerSpec& spec);
  bool WantsPrefix(std::string_view text, TextPlace place) const;
  void EncodeStretch(std::string_view text, TextPlace place, std::vector<TokenId>& out) const;
  void EncodeCharacters(std::string_view text, std::vector<TokenId>& out) const;
  void EncodePiece(std::string_view piece, std::vector<TokenId>& out) const;
  void AppendByteSymbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void AppendCharacterSymbols(std::string_view piece, std::vector<TokenId>& symbols) const;
  void AppendUnknown(std::vector<TokenId>& symbols) const;
  TokenId WholeWord(std::string_view piece) const;

  Pretokenizer pretokenizer_;
  Vocabulary vocabulary_;
  BpeMerges merges_;
  TokenAlphabet alphabet_ = TokenAlphabet::kBytes;
  PrefixSpace prefix_space_ = PrefixSpace::kNone;
  bool nfc_ = false;
  bool whole_words_ = false;
  bool fuse_unknown_ = false;
  TokenId unknown_ = -1;
  TokenId bos_ = -1;
  bool add_bos_ = false;
  std::vector<TokenId> stop_tokens_;
};

}  // namespace kvring::replica
