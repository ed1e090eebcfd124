#include "replica/model/model_config.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

// Larger numbers are no model that could be meant; the bound keeps all later products far inside int64.
constexpr uint64_t kMaxDimension = 1 << 24;

class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  absl::Status SetPrefix() {
    KVRING_ASSIGN_OR_RETURN(const std::string_view architecture, file_.GetString("general.architecture"));
    prefix_ = std::string(architecture);
    if (prefix_ != "llama") {
      return absl::UnimplementedError(
          absl::StrCat(file_.name(), ": general.architecture \"", prefix_, "\" is not supported (llama is)"));
    }
    return absl::OkStatus();
  }
  const std::string& prefix() const { return prefix_; }
  std::string Key(const char* name) const { return absl::StrCat(prefix_, ".", name); }
  bool Has(const char* name) const { return file_.Has(Key(name)); }

  absl::StatusOr<int32_t> Dimension(const char* name) const {
    KVRING_ASSIGN_OR_RETURN(const uint64_t value, file_.GetUint(Key(name)));
    if (value < 1 || value > kMaxDimension)
      return Bad(name, absl::StrCat(value, " is not 1 to ", kMaxDimension));
    return static_cast<int32_t>(value);
  }
  absl::StatusOr<int32_t> DimensionOr(const char* name, int32_t otherwise) const {
    if (!Has(name)) return otherwise;
    return Dimension(name);
  }
  absl::Status Bad(const char* name, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.name(), ": \"", Key(name), "\": ", what));
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

absl::Status ReadHeads(const KeyReader& keys, ModelConfig& config) {
  KVRING_ASSIGN_OR_RETURN(config.heads, keys.Dimension("attention.head_count"));
  KVRING_ASSIGN_OR_RETURN(config.kv_heads, keys.DimensionOr("attention.head_count_kv", config.heads));
  if (config.heads % config.kv_heads != 0) {
    return keys.Bad("attention.head_count_kv",
                    absl::StrCat(config.kv_heads, " does not divide the ", config.heads, " heads"));
  }
  if (!keys.Has("attention.key_length") && config.width % config.heads != 0) {
    return keys.Bad("attention.head_count",
                    absl::StrCat(config.heads, " does not divide the width ", config.width));
  }
  KVRING_ASSIGN_OR_RETURN(config.head_dim,
                          keys.DimensionOr("attention.key_length", config.width / config.heads));
  KVRING_ASSIGN_OR_RETURN(const int32_t value_dim,
                          keys.DimensionOr("attention.value_length", config.head_dim));
  if (value_dim != config.head_dim) return keys.Bad("attention.value_length", "differs from the key length");
  if (config.head_dim % 2 != 0) return keys.Bad("attention.key_length", "is odd");
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  KVRING_ASSIGN_OR_RETURN(const int32_t turned, keys.DimensionOr("rope.dimension_count", config.head_dim));
  if (turned != config.head_dim) return keys.Bad("rope.dimension_count", "differs from the head's dimension");
  if (keys.Has("rope.freq_base")) {
    KVRING_ASSIGN_OR_RETURN(config.rope_theta, file.GetFloat(keys.Key("rope.freq_base")));
    if (!(config.rope_theta >= 1.0)) return keys.Bad("rope.freq_base", "is below 1");
  }
  if (keys.Has("rope.scaling.type")) {
    KVRING_ASSIGN_OR_RETURN(const std::string_view scaling, file.GetString(keys.Key("rope.scaling.type")));
    if (scaling != "none") {
      return absl::UnimplementedError(
          absl::StrCat(file.name(), ": rope scaling \"", std::string(scaling), "\" is not supported"));
    }
  }
  if (file.FindTensor("rope_freqs.weight") != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(file.name(), ": rope_freqs.weight (scaled RoPE) is not supported"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  KeyReader keys(file);
  KVRING_RETURN_IF_ERROR(keys.SetPrefix());
  ModelConfig config;
  config.architecture = keys.prefix();
  if (file.Has("general.name")) {
    KVRING_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.name"));
    config.name = std::string(name);
  }
  KVRING_ASSIGN_OR_RETURN(config.layers, keys.Dimension("block_count"));
  KVRING_ASSIGN_OR_RETURN(config.width, keys.Dimension("embedding_length"));
  KVRING_ASSIGN_OR_RETURN(config.ffn_width, keys.Dimension("feed_forward_length"));
  KVRING_ASSIGN_OR_RETURN(config.context_length, keys.Dimension("context_length"));
  KVRING_RETURN_IF_ERROR(ReadHeads(keys, config));
  KVRING_ASSIGN_OR_RETURN(const double epsilon, file.GetFloat(keys.Key("attention.layer_norm_rms_epsilon")));
  config.norm_epsilon = static_cast<float>(epsilon);
  if (keys.Has("attention.sliding_window")) {
    KVRING_ASSIGN_OR_RETURN(config.window, keys.Dimension("attention.sliding_window"));
  }
  KVRING_RETURN_IF_ERROR(ReadRope(file, keys, config));
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr)
    return absl::NotFoundError(absl::StrCat(file.name(), ": tensor \"token_embd.weight\" is missing"));
  if (embedding->dim(1) > static_cast<int64_t>(kMaxDimension)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), ": tensor \"token_embd.weight\" has too many rows"));
  }
  config.vocab_size = static_cast<int32_t>(embedding->dim(1));
  return config;
}

}  // namespace kvring::replica
