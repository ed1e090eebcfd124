#include "replica/model/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "replica/model/byte_alphabet.h"
#include "replica/model/composed_text.h"

namespace kvring::replica {
namespace {

bool BeginsWithSpace(std::string_view text, TokenAlphabet alphabet) {
  return text.starts_with(' ') ||
         (alphabet == TokenAlphabet::kSentencePiece && text.starts_with(kSpaceSymbol));
}

// Bytes of the character that valid text starts with.
size_t CharacterLength(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && (static_cast<uint8_t>(text[length]) & 0xC0) == 0x80) ++length;
  return length;
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Create(const TokenizerSpec& spec) {
  KVRING_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::Create(spec.splits));
  KVRING_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(spec));
  Tokenizer tokenizer(std::move(pretokenizer), std::move(vocabulary));
  tokenizer.alphabet_ = spec.alphabet;
  tokenizer.prefix_space_ = spec.prefix_space;
  tokenizer.nfc_ = spec.nfc;
  tokenizer.whole_words_ = spec.whole_words;
  tokenizer.fuse_unknown_ = spec.fuse_unknown;
  KVRING_RETURN_IF_ERROR(tokenizer.ReadMerges(spec));
  KVRING_RETURN_IF_ERROR(tokenizer.ReadSpecialIds(spec));
  return tokenizer;
}

absl::Status Tokenizer::ReadMerges(const TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    const std::string merged = absl::StrCat(left, right);
    const BpeMerges::Rule rule{vocabulary_.Find(left), vocabulary_.Find(right), vocabulary_.Find(merged),
                               spec.ranks.empty() ? static_cast<int32_t>(i) : spec.ranks[i]};
    if (rule.left >= 0 && rule.right >= 0 && rule.merged >= 0) {
      merges_.Add(rule);
      continue;
    }
    const bool apart =
        vocabulary_.IsNeverText(left) || vocabulary_.IsNeverText(right) || vocabulary_.IsNeverText(merged);
    if (apart) continue;
    return absl::InvalidArgumentError(absl::StrCat(spec.file, ": merges[", i, "] '", left.substr(0, 64),
                                                   "' '", right.substr(0, 64),
                                                   "': not two known tokens that make a third"));
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadSpecialIds(const TokenizerSpec& spec) {
  const auto check = [&](const char* name, TokenId id) -> absl::Status {
    if (id >= -1 && id < vocab_size()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(spec.file, ": ", name, "_token_id: ", id,
                                                   " is outside the vocabulary of ", vocab_size()));
  };
  KVRING_RETURN_IF_ERROR(check("bos", spec.bos));
  KVRING_RETURN_IF_ERROR(check("unknown", spec.unknown));
  for (const TokenId id : spec.stops) {
    KVRING_RETURN_IF_ERROR(check("eos", id));
    const bool known = std::find(stop_tokens_.begin(), stop_tokens_.end(), id) != stop_tokens_.end();
    if (id >= 0 && !known) stop_tokens_.push_back(id);
  }
  bos_ = spec.bos;
  unknown_ = spec.unknown;
  add_bos_ = spec.add_bos && spec.bos >= 0;
  return absl::OkStatus();
}

void Tokenizer::Encode(std::string_view text, ControlTokens control, TextPlace place,
                       std::vector<TokenId>& out) const {
  while (!text.empty()) {
    size_t at = 0;
    const Vocabulary::Added* added = vocabulary_.FindAdded(text, control, at);
    EncodeStretch(text.substr(0, at), place, out);
    if (added == nullptr) return;
    out.push_back(added->id);
    text.remove_prefix(at + added->text.size());
    place = TextPlace::kBehindTokens;
  }
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, ControlTokens control, TextPlace place) const {
  std::vector<TokenId> out;
  Encode(text, control, place, out);
  return out;
}

bool Tokenizer::WantsPrefix(std::string_view text, TextPlace place) const {
  switch (prefix_space_) {
    case PrefixSpace::kNone:
      return false;
    case PrefixSpace::kAlways:
      return true;
    case PrefixSpace::kMissing:
      return !BeginsWithSpace(text, alphabet_);
    case PrefixSpace::kFirstOnly:
      break;
  }
  return place == TextPlace::kBeginning && !BeginsWithSpace(text, alphabet_);
}

// Bytes that are no characters (the text of cut tokens) are pieces of their own: pre-tokenizer rules speak of
// characters.
void Tokenizer::EncodeStretch(std::string_view text, TextPlace place, std::vector<TokenId>& out) const {
  bool prefix = !text.empty() && WantsPrefix(text, place);
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (prefix) {
      EncodeCharacters(absl::StrCat(" ", std::string(text.substr(0, valid))), out);
    } else {
      EncodeCharacters(text.substr(0, valid), out);
    }
    prefix = false;
    text.remove_prefix(valid);
    if (text.empty()) return;
    const TokenId byte = vocabulary_.OfByte(text[0]);
    if (byte >= 0) out.push_back(byte);
    if (byte < 0) AppendUnknown(out);
    text.remove_prefix(1);
  }
}

void Tokenizer::EncodeCharacters(std::string_view text, std::vector<TokenId>& out) const {
  const auto encode = [&](std::string_view piece) { EncodePiece(piece, out); };
  if (nfc_) {
    pretokenizer_.Split(Composed(text), encode);
  } else {
    pretokenizer_.Split(text, encode);
  }
}

void Tokenizer::EncodePiece(std::string_view piece, std::vector<TokenId>& out) const {
  if (const TokenId whole = WholeWord(piece); whole >= 0) {
    out.push_back(whole);
    return;
  }
  std::vector<TokenId> symbols;
  symbols.reserve(piece.size());
  if (alphabet_ == TokenAlphabet::kBytes) {
    AppendByteSymbols(piece, symbols);
  } else {
    AppendCharacterSymbols(piece, symbols);
  }
  merges_.Apply(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

TokenId Tokenizer::WholeWord(std::string_view piece) const {
  if (!whole_words_ || piece.size() > kMaxTokenBytes) return -1;
  return vocabulary_.Find(alphabet_ == TokenAlphabet::kBytes ? AlphabetOfBytes(piece) : std::string(piece));
}

void Tokenizer::AppendByteSymbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  for (char c : piece) {
    const TokenId symbol = vocabulary_.OfByte(c);
    if (symbol >= 0) symbols.push_back(symbol);
    if (symbol < 0) AppendUnknown(symbols);
  }
}

void Tokenizer::AppendCharacterSymbols(std::string_view piece, std::vector<TokenId>& symbols) const {
  while (!piece.empty()) {
    const size_t length = CharacterLength(piece);
    const std::string_view character = piece[0] == ' ' ? kSpaceSymbol : piece.substr(0, length);
    const TokenId symbol = vocabulary_.Find(character);
    if (symbol >= 0) {
      symbols.push_back(symbol);
    } else if (vocabulary_.has_all_bytes()) {
      for (char byte : character) symbols.push_back(vocabulary_.OfByte(byte));
    } else {
      AppendUnknown(symbols);
    }
    piece.remove_prefix(length);
  }
}

void Tokenizer::AppendUnknown(std::vector<TokenId>& symbols) const {
  if (unknown_ < 0) return;
  if (fuse_unknown_ && !symbols.empty() && symbols.back() == unknown_) return;
  symbols.push_back(unknown_);
}

size_t Tokenizer::EndOf(TokenId token, std::string_view text, size_t at) const {
  const std::string& bytes = Bytes(token);
  const auto dropped = [&](char byte) { return unknown_ < 0 && vocabulary_.OfByte(byte) < 0; };
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (at < text.size() && text[at] != bytes[i] && dropped(text[at])) ++at;
    if (at < text.size() && text[at] == bytes[i]) {
      ++at;
    } else if (i > 0 || bytes[i] != ' ' || prefix_space_ == PrefixSpace::kNone) {
      return text.size();
    }
  }
  return at;
}

std::string Tokenizer::DecodeBytes(std::span<const TokenId> ids, TextPlace place) const {
  std::string out;
  for (TokenId id : ids) out += Bytes(id);
  const bool prefixed = prefix_space_ == PrefixSpace::kFirstOnly ? place == TextPlace::kBeginning
                                                                 : prefix_space_ != PrefixSpace::kNone;
  if (prefixed && !ids.empty() && !IsControl(ids[0]) && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

}  // namespace kvring::replica
