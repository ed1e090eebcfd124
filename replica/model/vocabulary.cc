#include "replica/model/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/absl_view.h"
#include "common/hex_digit.h"
#include "common/status_macros.h"
#include "replica/model/byte_alphabet.h"

namespace kvring::replica {
namespace {

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

// Tokens that work as control tokens whatever their file says of them: turns of a chat are made of them.
bool LooksLikeControl(std::string_view text) {
  if (text == "<start_of_turn>" || text == "<end_of_turn>") return true;
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<｜") && text.ends_with("｜>"));
}

absl::Status TokenError(const TokenizerSpec& spec, size_t index, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(spec.file, ": tokens[", index, "] '",
                                                 spec.tokens[index].substr(0, 64), "': ", std::string(what)));
}

std::string BytesOf(TokenAlphabet alphabet, const std::string& token) {
  if (alphabet == TokenAlphabet::kBytes) return BytesOfAlphabet(token);
  return absl::StrReplaceAll(token, {{Absl(kSpaceSymbol), " "}});
}

}  // namespace

absl::StatusOr<Vocabulary> Vocabulary::Create(const TokenizerSpec& spec) {
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat(spec.file, ": token_type: ", spec.types.size(),
                                                   " entries for ", spec.tokens.size(), " tokens"));
  }
  Vocabulary vocabulary;
  vocabulary.of_byte_.fill(-1);
  vocabulary.ids_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].size() > kMaxTokenBytes)
      return TokenError(spec, i, absl::StrCat("is longer than ", kMaxTokenBytes, " bytes"));
    KVRING_RETURN_IF_ERROR(vocabulary.Add(spec, i, TypeOf(spec, i)));
  }
  for (std::vector<Added>& list : vocabulary.added_) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Added& a, const Added& b) { return a.text.size() > b.text.size(); });
  }
  vocabulary.has_all_bytes_ =
      std::all_of(vocabulary.of_byte_.begin(), vocabulary.of_byte_.end(), [](TokenId id) { return id >= 0; });
  return vocabulary;
}

absl::Status Vocabulary::Add(const TokenizerSpec& spec, size_t index, TokenType type) {
  switch (type) {
    case TokenType::kNormal:
      return AddNormal(spec, index);
    case TokenType::kByte:
      return AddByte(spec, index);
    case TokenType::kUnknown:
    case TokenType::kControl:
      AddWhole(spec, index, true);
      return absl::OkStatus();
    case TokenType::kUserDefined:
      AddWhole(spec, index, LooksLikeControl(spec.tokens[index]));
      return absl::OkStatus();
    case TokenType::kUnused:
      bytes_.emplace_back();
      control_.push_back(false);
      return absl::OkStatus();
  }
  return TokenError(spec, index, absl::StrCat("its type ", static_cast<int32_t>(type), " is unknown"));
}

absl::Status Vocabulary::AddNormal(const TokenizerSpec& spec, size_t index) {
  const auto id = static_cast<TokenId>(index);
  if (!ids_.try_emplace(spec.tokens[index], id).second) return TokenError(spec, index, "occurs twice");
  bytes_.push_back(BytesOf(spec.alphabet, spec.tokens[index]));
  control_.push_back(false);
  if (spec.alphabet == TokenAlphabet::kBytes && bytes_.back().size() == 1)
    of_byte_[static_cast<uint8_t>(bytes_.back()[0])] = id;
  return absl::OkStatus();
}

absl::Status Vocabulary::AddByte(const TokenizerSpec& spec, size_t index) {
  const int byte = ByteOf(spec.tokens[index]);
  if (byte < 0) return TokenError(spec, index, "a byte token must be <0x00> to <0xFF>");
  if (of_byte_[static_cast<size_t>(byte)] >= 0)
    return TokenError(spec, index, "its byte has a token already");
  of_byte_[static_cast<size_t>(byte)] = static_cast<TokenId>(index);
  bytes_.push_back(std::string(1, static_cast<char>(byte)));
  control_.push_back(false);
  return absl::OkStatus();
}

// A user-defined token may also be the result of merges; a control token never is.
void Vocabulary::AddWhole(const TokenizerSpec& spec, size_t index, bool control) {
  const std::string& token = spec.tokens[index];
  const auto id = static_cast<TokenId>(index);
  if (!control) ids_.try_emplace(token, id);
  const bool spaces = spec.alphabet == TokenAlphabet::kSentencePiece && !control;
  bytes_.push_back(spaces ? BytesOf(spec.alphabet, token) : token);
  control_.push_back(control);
  if (!token.empty()) added_[static_cast<uint8_t>(token[0])].push_back({token, id, control});
}

TokenId Vocabulary::Find(std::string_view text) const {
  const auto found = ids_.find(Absl(text));
  return found == ids_.end() ? TokenId{-1} : found->second;
}

bool Vocabulary::IsNeverText(std::string_view token) const {
  if (token.empty()) return false;
  const int byte = ByteOf(token);
  if (byte >= 0 && of_byte_[static_cast<size_t>(byte)] >= 0 && Find(token) < 0) return true;
  const auto& list = added_[static_cast<uint8_t>(token[0])];
  return std::any_of(list.begin(), list.end(), [&](const Added& a) { return a.control && a.text == token; });
}

const Vocabulary::Added* Vocabulary::AddedAt(std::string_view text, ControlTokens control) const {
  for (const Added& added : added_[static_cast<uint8_t>(text[0])]) {
    if (added.control && control == ControlTokens::kAsText) continue;
    if (text.starts_with(added.text)) return &added;
  }
  return nullptr;
}

const Vocabulary::Added* Vocabulary::FindAdded(std::string_view text, ControlTokens control,
                                               size_t& at) const {
  for (at = 0; at < text.size(); ++at) {
    if (added_[static_cast<uint8_t>(text[at])].empty()) continue;
    if (const Added* added = AddedAt(text.substr(at), control)) return added;
  }
  return nullptr;
}

TokenId Vocabulary::ControlAt(std::string_view text) const {
  if (text.empty()) return -1;
  for (const Added& added : added_[static_cast<uint8_t>(text[0])]) {
    if (added.control && text.starts_with(added.text)) return added.id;
  }
  return -1;
}

}  // namespace kvring::replica
