#include "replica/model/gguf_text.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

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

absl::StatusOr<std::vector<int32_t>> TokenTypes(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.Has(kKey)) return std::vector<int32_t>{};
  KVRING_ASSIGN_OR_RETURN(const auto types, file.GetIntArray(kKey));
  return std::vector<int32_t>(types.begin(), types.end());
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file) {
  TokenizerSpec spec;
  KVRING_ASSIGN_OR_RETURN(spec.model, file.GetString("tokenizer.ggml.model"));
  spec.pre = "default";
  if (file.Has("tokenizer.ggml.pre")) {
    KVRING_ASSIGN_OR_RETURN(spec.pre, file.GetString("tokenizer.ggml.pre"));
  }
  KVRING_ASSIGN_OR_RETURN(spec.tokens, Strings(file, "tokenizer.ggml.tokens"));
  KVRING_ASSIGN_OR_RETURN(spec.types, TokenTypes(file));
  if (file.Has("tokenizer.ggml.merges")) {
    KVRING_ASSIGN_OR_RETURN(spec.merges, Strings(file, "tokenizer.ggml.merges"));
  }
  KVRING_ASSIGN_OR_RETURN(spec.bos, OptionalToken(file, "tokenizer.ggml.bos_token_id"));
  KVRING_ASSIGN_OR_RETURN(spec.eos, OptionalToken(file, "tokenizer.ggml.eos_token_id"));
  KVRING_ASSIGN_OR_RETURN(spec.eot, OptionalToken(file, "tokenizer.ggml.eot_token_id"));
  if (file.Has("tokenizer.ggml.add_bos_token")) {
    KVRING_ASSIGN_OR_RETURN(spec.add_bos, file.GetBool("tokenizer.ggml.add_bos_token"));
  }
  return spec;
}

absl::StatusOr<std::string> ReadChatTemplate(const GgufFile& file) {
  if (!file.Has("tokenizer.chat_template")) return std::string();
  KVRING_ASSIGN_OR_RETURN(const std::string_view source, file.GetString("tokenizer.chat_template"));
  return std::string(source);
}

}  // namespace kvring::replica
