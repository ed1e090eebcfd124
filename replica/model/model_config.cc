#include "replica/model/model_config.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/rope_scaling.h"

namespace kvring::replica {
namespace {

constexpr uint64_t kMaxDimension = kMaxModelDimension;

class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  absl::Status SetPrefix() {
    KVRING_ASSIGN_OR_RETURN(const std::string_view architecture, file_.GetString("general.architecture"));
    prefix_ = std::string(architecture);
    if (prefix_ != "llama" && prefix_ != "qwen2" && prefix_ != "qwen3" && prefix_ != "gpt2") {
      return absl::UnimplementedError(absl::StrCat(file_.name(), ": general.architecture \"", prefix_,
                                                   "\" is not supported (llama, qwen2, qwen3 and gpt2 are)"));
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
  absl::StatusOr<double> Number(const char* name) const {
    KVRING_ASSIGN_OR_RETURN(const double value, file_.GetFloat(Key(name)));
    if (!(value > 0 && value < 1e12)) return Bad(name, absl::StrCat(value, " is not a positive number"));
    return value;
  }
  absl::StatusOr<double> NumberOr(const char* name, double otherwise) const {
    if (!Has(name)) return otherwise;
    return Number(name);
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

absl::StatusOr<RopeScaling> ReadScaling(const GgufFile& file, const KeyReader& keys,
                                        const ModelConfig& config) {
  RopeScaling scaling;
  if (!keys.Has("rope.scaling.type")) return scaling;
  KVRING_ASSIGN_OR_RETURN(const std::string_view type, file.GetString(keys.Key("rope.scaling.type")));
  if (type == "none") return scaling;
  if (type != "linear" && type != "yarn") {
    return absl::UnimplementedError(
        absl::StrCat(file.name(), ": rope scaling \"", std::string(type), "\" is not supported"));
  }
  scaling.kind = type == "linear" ? RopeScalingKind::kLinear : RopeScalingKind::kYarn;
  KVRING_ASSIGN_OR_RETURN(scaling.factor, keys.Number("rope.scaling.factor"));
  KVRING_ASSIGN_OR_RETURN(scaling.original_context,
                          keys.DimensionOr("rope.scaling.original_context_length", config.context_length));
  return scaling;
}

// Divisors of the frequencies: what Llama 3.1 files hold in place of their scaling's parameters.
absl::Status DivideFrequencies(const GgufFile& file, ModelConfig& config) {
  const GgufTensor* divisors = file.FindTensor("rope_freqs.weight");
  if (divisors == nullptr) return absl::OkStatus();
  std::vector<float> values(config.rope_frequencies.size());
  if (divisors->type != TensorType::kF32 || divisors->data.size() != values.size() * 4) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), ": tensor \"rope_freqs.weight\" is not ", values.size(), " x f32"));
  }
  std::memcpy(values.data(), divisors->data.data(), divisors->data.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name(), ": tensor \"rope_freqs.weight\": element ", i, " is not positive"));
    }
    config.rope_frequencies[i] /= values[i];
  }
  return absl::OkStatus();
}

absl::Status ReadRope(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  if (config.architecture != "llama") config.rope_pairs = kernels::RopePairs::kHalves;
  KVRING_ASSIGN_OR_RETURN(const int32_t turned, keys.DimensionOr("rope.dimension_count", config.head_dim));
  if (turned != config.head_dim) return keys.Bad("rope.dimension_count", "differs from the head's dimension");
  KVRING_ASSIGN_OR_RETURN(config.rope_theta, keys.NumberOr("rope.freq_base", config.rope_theta));
  if (config.rope_theta < 1) return keys.Bad("rope.freq_base", "is below 1");
  KVRING_ASSIGN_OR_RETURN(const RopeScaling scaling, ReadScaling(file, keys, config));
  config.rope_frequencies = ScaledFrequencies(scaling, config.head_dim, config.rope_theta);
  config.rope_magnitude = RopeMagnitude(scaling);
  return DivideFrequencies(file, config);
}

absl::Status ReadFamily(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  const bool gpt2 = config.architecture == "gpt2";
  const char* epsilon = gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  KVRING_ASSIGN_OR_RETURN(const double value, file.GetFloat(keys.Key(epsilon)));
  config.norm_epsilon = static_cast<float>(value);
  if (!gpt2) return ReadRope(file, keys, config);
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.feed_forward = FeedForwardKind::kGelu;
  return absl::OkStatus();
}

// gguf-split cuts models into files; each alone lacks most tensors.
absl::Status RefuseParts(const GgufFile& file) {
  if (!file.Has("split.count")) return absl::OkStatus();
  KVRING_ASSIGN_OR_RETURN(const uint64_t parts, file.GetUint("split.count"));
  if (parts <= 1) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(file.name(), ": \"split.count\": is one of ", parts,
                                               " files of a model; merge them first (gguf-split --merge)"));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  KVRING_RETURN_IF_ERROR(RefuseParts(file));
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
  if (keys.Has("attention.sliding_window")) {
    KVRING_ASSIGN_OR_RETURN(config.window, keys.Dimension("attention.sliding_window"));
  }
  KVRING_RETURN_IF_ERROR(ReadFamily(file, keys, config));
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
