#include "replica/model/gguf_text.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/pretokenizer.h"
#include "replica/model/score_merges.h"

namespace kvring::replica {
namespace {

absl::StatusOr<std::vector<std::string>> Strings(const GgufFile& file, std::string_view key) {
  KVRING_ASSIGN_OR_RETURN(const auto views, file.GetStringArray(key));
  return std::vector<std::string>(views.begin(), views.end());
}

absl::StatusOr<TokenId> OptionalToken(const GgufFile& file, std::string_view key) {
  if (!file.Has(key)) return TokenId{-1};
  KVRING_ASSIGN_OR_RETURN(const uint64_t id, file.GetUint(key));
  if (id > INT32_MAX)
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), ": ", std::string(key), ": ", id, " is no token"));
  return static_cast<TokenId>(id);
}

absl::StatusOr<std::vector<int32_t>> TokenTypes(const GgufFile& file, size_t tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.Has(kKey)) return std::vector<int32_t>{};
  KVRING_ASSIGN_OR_RETURN(const auto types, file.GetIntArray(kKey));
  if (types.size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(file.name(), ": ", std::string(kKey), ": ", types.size(),
                                                   " entries for ", tokens, " tokens"));
  }
  return std::vector<int32_t>(types.begin(), types.end());
}

absl::StatusOr<bool> BoolOr(const GgufFile& file, std::string_view key, bool otherwise) {
  return file.Has(key) ? file.GetBool(key) : otherwise;
}

absl::StatusOr<std::pair<std::string, std::string>> Merge(const GgufFile& file, const std::string& text,
                                                          size_t index) {
  const size_t space = text.find(' ', 1);
  if (space != std::string::npos) return std::pair{text.substr(0, space), text.substr(space + 1)};
  return absl::InvalidArgumentError(absl::StrCat(file.name(), ": tokenizer.ggml.merges[", index, "] '",
                                                 text.substr(0, 64), "' has no space"));
}

// Byte-level BPE: a pre-tokenizer by its name and a list of merges.
absl::Status ReadByteLevel(const GgufFile& file, TokenizerSpec& spec) {
  std::string_view pre = "default";
  if (file.Has("tokenizer.ggml.pre")) {
    KVRING_ASSIGN_OR_RETURN(pre, file.GetString("tokenizer.ggml.pre"));
  }
  KVRING_ASSIGN_OR_RETURN(spec.splits, NamedSplits(pre));
  spec.whole_words = pre.starts_with("llama");
  spec.nfc = pre == "qwen2";
  if (!file.Has("tokenizer.ggml.merges")) return absl::OkStatus();
  KVRING_ASSIGN_OR_RETURN(const auto merges, Strings(file, "tokenizer.ggml.merges"));
  for (size_t i = 0; i < merges.size(); ++i) {
    KVRING_ASSIGN_OR_RETURN(auto merge, Merge(file, merges[i], i));
    spec.merges.push_back(std::move(merge));
  }
  return absl::OkStatus();
}

// SentencePiece BPE: a score per token.
absl::Status ReadSentencePiece(const GgufFile& file, TokenizerSpec& spec) {
  spec.alphabet = TokenAlphabet::kSentencePiece;
  KVRING_ASSIGN_OR_RETURN(const bool prefix, BoolOr(file, "tokenizer.ggml.add_space_prefix", true));
  spec.prefix_space = prefix ? PrefixSpace::kAlways : PrefixSpace::kNone;
  KVRING_ASSIGN_OR_RETURN(const bool squeezes,
                          BoolOr(file, "tokenizer.ggml.remove_extra_whitespaces", false));
  if (squeezes) {
    return absl::UnimplementedError(
        absl::StrCat(file.name(), ": tokenizer.ggml.remove_extra_whitespaces: true is not supported"));
  }
  KVRING_ASSIGN_OR_RETURN(spec.unknown, OptionalToken(file, "tokenizer.ggml.unknown_token_id"));
  KVRING_ASSIGN_OR_RETURN(const std::vector<float> scores, file.GetFloatArray("tokenizer.ggml.scores"));
  if (scores.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat(file.name(), ": tokenizer.ggml.scores: ", scores.size(),
                                                   " entries for ", spec.tokens.size(), " tokens"));
  }
  AddScoreMerges(scores, spec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file) {
  TokenizerSpec spec;
  spec.file = file.name();
  KVRING_ASSIGN_OR_RETURN(spec.tokens, Strings(file, "tokenizer.ggml.tokens"));
  KVRING_ASSIGN_OR_RETURN(spec.types, TokenTypes(file, spec.tokens.size()));
  KVRING_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model == "gpt2") {
    KVRING_RETURN_IF_ERROR(ReadByteLevel(file, spec));
  } else if (model == "llama") {
    KVRING_RETURN_IF_ERROR(ReadSentencePiece(file, spec));
  } else {
    return absl::UnimplementedError(absl::StrCat(file.name(), ": tokenizer.ggml.model: '", std::string(model),
                                                 "' is not supported (gpt2 and llama are)"));
  }
  KVRING_ASSIGN_OR_RETURN(spec.bos, OptionalToken(file, "tokenizer.ggml.bos_token_id"));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    KVRING_ASSIGN_OR_RETURN(const TokenId id, OptionalToken(file, key));
    if (id >= 0) spec.stops.push_back(id);
  }
  // Files of SentencePiece models say nothing where they want the BOS that Llama has.
  KVRING_ASSIGN_OR_RETURN(spec.add_bos, BoolOr(file, "tokenizer.ggml.add_bos_token", model == "llama"));
  return spec;
}

absl::StatusOr<std::string> ReadChatTemplate(const GgufFile& file) {
  if (!file.Has("tokenizer.chat_template")) return std::string();
  KVRING_ASSIGN_OR_RETURN(const std::string_view source, file.GetString("tokenizer.chat_template"));
  return std::string(source);
}

}  // namespace kvring::replica
