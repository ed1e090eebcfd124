#include "replica/model/tokenizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/hex_digit.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "replica/model/byte_alphabet.h"

namespace kvring::replica {
namespace {

using TokenType = TokenizerSpec::TokenType;

TokenType TypeOf(const TokenizerSpec& spec, size_t index) {
  return spec.types.empty() ? TokenType::kNormal : static_cast<TokenType>(spec.types[index]);
}

// The byte of "<0xHH>", or -1.
int ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

absl::Status TokenError(size_t index, std::string_view token, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens[", index, "] '",
                                                 std::string(token.substr(0, 64)), "': ", std::string(what)));
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Create(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer.ggml.model: '", spec.model, "' is not supported (known: gpt2)"));
  }
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type: ", spec.types.size(),
                                                   " entries for ", spec.tokens.size(), " tokens"));
  }
  KVRING_ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::Create(spec.pre));
  Tokenizer tokenizer(std::move(pretokenizer));
  KVRING_RETURN_IF_ERROR(tokenizer.ReadTokens(spec));
  KVRING_RETURN_IF_ERROR(tokenizer.ReadMerges(spec));
  KVRING_RETURN_IF_ERROR(tokenizer.ReadSpecialIds(spec));
  return tokenizer;
}

absl::Status Tokenizer::ReadTokens(const TokenizerSpec& spec) {
  byte_symbol_.fill(-1);
  ids_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& token = spec.tokens[i];
    const auto id = static_cast<TokenId>(i);
    const TokenType type = TypeOf(spec, i);
    if (type == TokenType::kByte) {
      KVRING_RETURN_IF_ERROR(ReadByteToken(spec, i));
      continue;
    }
    const bool whole =
        type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
    control_.push_back(type == TokenType::kControl || type == TokenType::kUnknown);
    if (whole) {
      bytes_.push_back(token);
      if (!token.empty()) added_[static_cast<uint8_t>(token[0])].push_back({token, id, control_.back()});
      continue;
    }
    if (!ids_.try_emplace(token, id).second) return TokenError(i, token, "occurs twice");
    bytes_.push_back(BytesOfAlphabet(token));
    if (bytes_.back().size() == 1) byte_symbol_[static_cast<uint8_t>(bytes_.back()[0])] = id;
  }
  for (std::vector<Added>& list : added_) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadByteToken(const TokenizerSpec& spec, size_t index) {
  const std::string& token = spec.tokens[index];
  const int byte = ByteOf(token);
  if (byte < 0) return TokenError(index, token, "a byte token must be <0x00> to <0xFF>");
  if (byte_symbol_[static_cast<size_t>(byte)] >= 0)
    return TokenError(index, token, "its byte has a token already");
  byte_symbol_[static_cast<size_t>(byte)] = static_cast<TokenId>(index);
  bytes_.push_back(std::string(1, static_cast<char>(byte)));
  control_.push_back(false);
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadMerges(const TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const std::string_view merge = spec.merges[i];
    const size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = space == std::string_view::npos ? "" : merge.substr(space + 1);
    const auto id = [&](const std::string& text) {
      const auto it = ids_.find(text);
      return it == ids_.end() ? TokenId{-1} : it->second;
    };
    const TokenId left_id = id(std::string(left));
    const TokenId right_id = id(std::string(right));
    const TokenId merged = id(absl::StrCat(std::string(left), std::string(right)));
    if (left_id < 0 || right_id < 0 || merged < 0) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges[", i, "] '",
                                                     std::string(merge.substr(0, 64)),
                                                     "': not two known tokens that make a third"));
    }
    merges_.Add(left_id, right_id, merged);
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadSpecialIds(const TokenizerSpec& spec) {
  for (const auto& [name, id] : {std::pair{"bos", spec.bos}, {"eos", spec.eos}, {"eot", spec.eot}}) {
    if (id < -1 || id >= vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", name, "_token_id: ", id,
                                                     " is outside the vocabulary of ", vocab_size()));
    }
  }
  bos_ = spec.bos;
  add_bos_ = spec.add_bos && spec.bos >= 0;
  for (TokenId id : {spec.eos, spec.eot}) {
    if (id >= 0 && std::find(stop_tokens_.begin(), stop_tokens_.end(), id) == stop_tokens_.end())
      stop_tokens_.push_back(id);
  }
  return absl::OkStatus();
}

const Tokenizer::Added* Tokenizer::AddedAt(std::string_view text, ControlTokens control) const {
  for (const Added& added : added_[static_cast<uint8_t>(text[0])]) {
    if (added.control && control == ControlTokens::kAsText) continue;
    if (text.starts_with(added.text)) return &added;
  }
  return nullptr;
}

const Tokenizer::Added* Tokenizer::FindAdded(std::string_view text, ControlTokens control, size_t& at) const {
  for (at = 0; at < text.size(); ++at) {
    if (added_[static_cast<uint8_t>(text[at])].empty()) continue;
    if (const Added* added = AddedAt(text.substr(at), control)) return added;
  }
  return nullptr;
}

TokenId Tokenizer::ControlAt(std::string_view text) const {
  if (text.empty()) return -1;
  for (const Added& added : added_[static_cast<uint8_t>(text[0])]) {
    if (added.control && text.starts_with(added.text)) return added.id;
  }
  return -1;
}

void Tokenizer::Encode(std::string_view text, ControlTokens control, std::vector<TokenId>& out) const {
  while (!text.empty()) {
    size_t at = 0;
    const Added* added = FindAdded(text, control, at);
    EncodePlain(text.substr(0, at), out);
    if (added == nullptr) return;
    out.push_back(added->id);
    text.remove_prefix(at + added->text.size());
  }
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, ControlTokens control) const {
  std::vector<TokenId> out;
  Encode(text, control, out);
  return out;
}

// Bytes that are no characters (the text of cut tokens) are pieces of their own: pre-tokenizer rules speak of
// characters.
void Tokenizer::EncodePlain(std::string_view text, std::vector<TokenId>& out) const {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    pretokenizer_.Split(text.substr(0, valid), [&](std::string_view piece) { EncodePiece(piece, out); });
    text.remove_prefix(valid);
    if (text.empty()) return;
    EncodePiece(text.substr(0, 1), out);
    text.remove_prefix(1);
  }
}

void Tokenizer::EncodePiece(std::string_view piece, std::vector<TokenId>& out) const {
  std::vector<TokenId> symbols;
  symbols.reserve(piece.size());
  for (char c : piece) {
    const TokenId symbol = byte_symbol_[static_cast<uint8_t>(c)];
    if (symbol >= 0) symbols.push_back(symbol);
  }
  merges_.Apply(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

size_t Tokenizer::EndOf(TokenId token, std::string_view text, size_t at) const {
  for (char byte : Bytes(token)) {
    while (at < text.size() && text[at] != byte) ++at;
    ++at;
  }
  return std::min(at, text.size());
}

std::string Tokenizer::DecodeBytes(const std::vector<TokenId>& ids) const {
  std::string out;
  for (TokenId id : ids) out += Bytes(id);
  return out;
}

}  // namespace kvring::replica
