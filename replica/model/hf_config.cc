#include "replica/model/hf_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/json_file.h"
#include "replica/model/rope_scaling.h"

namespace kvring::replica {
namespace {

absl::StatusOr<int32_t> Dimension(const JsonNode& node, const char* key) {
  KVRING_ASSIGN_OR_RETURN(const JsonNode value, node.Get(key));
  KVRING_ASSIGN_OR_RETURN(const int64_t number, value.Int(1, kMaxModelDimension));
  return static_cast<int32_t>(number);
}

absl::StatusOr<int32_t> DimensionOr(const JsonNode& node, const char* key, int32_t otherwise) {
  if (!node.Find(key).has_value()) return otherwise;
  return Dimension(node, key);
}

absl::StatusOr<double> PositiveOr(const JsonNode& node, const char* key, double otherwise) {
  const auto value = node.Find(key);
  if (!value.has_value()) return otherwise;
  KVRING_ASSIGN_OR_RETURN(const double number, value->Number());
  if (number > 0 && number < 1e12) return number;
  return value->Bad("is no positive number");
}

absl::StatusOr<double> Positive(const JsonNode& node, const char* key) {
  KVRING_RETURN_IF_ERROR(node.Get(key).status());
  return PositiveOr(node, key, 0);
}

absl::Status ReadShape(const JsonNode& keys, ModelConfig& c) {
  KVRING_ASSIGN_OR_RETURN(c.layers, Dimension(keys, "num_hidden_layers"));
  KVRING_ASSIGN_OR_RETURN(c.width, Dimension(keys, "hidden_size"));
  KVRING_ASSIGN_OR_RETURN(c.ffn_width, Dimension(keys, "intermediate_size"));
  KVRING_ASSIGN_OR_RETURN(c.context_length, Dimension(keys, "max_position_embeddings"));
  KVRING_ASSIGN_OR_RETURN(c.vocab_size, Dimension(keys, "vocab_size"));
  KVRING_ASSIGN_OR_RETURN(c.heads, Dimension(keys, "num_attention_heads"));
  KVRING_ASSIGN_OR_RETURN(c.kv_heads, DimensionOr(keys, "num_key_value_heads", c.heads));
  if (c.heads % c.kv_heads != 0) return keys.Bad("num_key_value_heads", "does not divide the heads");
  if (!keys.Find("head_dim").has_value() && c.width % c.heads != 0) {
    return keys.Bad("num_attention_heads", "does not divide hidden_size");
  }
  KVRING_ASSIGN_OR_RETURN(c.head_dim, DimensionOr(keys, "head_dim", c.width / c.heads));
  if (c.head_dim % 2 != 0) return keys.Bad("head_dim", "is odd");
  KVRING_ASSIGN_OR_RETURN(const double epsilon, PositiveOr(keys, "rms_norm_eps", 1e-6));
  c.norm_epsilon = static_cast<float>(epsilon);
  KVRING_ASSIGN_OR_RETURN(const std::string act, keys.StringOr("hidden_act", "silu"));
  return act == "silu" ? absl::OkStatus() : keys.Unsupported("hidden_act", act);
}

absl::StatusOr<RopeScaling> ReadScaling(const JsonNode& rope, const ModelConfig& c) {
  RopeScaling s;
  KVRING_ASSIGN_OR_RETURN(const std::string old_type, rope.StringOr("type", "default"));
  KVRING_ASSIGN_OR_RETURN(const std::string type, rope.StringOr("rope_type", old_type));
  if (type == "default") return s;
  if (type != "linear" && type != "llama3" && type != "yarn") return rope.Unsupported("rope_type", type);
  for (const char* key : {"mscale", "mscale_all_dim", "truncate"}) {
    if (rope.Find(key).has_value()) return rope.Unsupported(key, "any value");
  }
  s.kind = type == "linear"   ? RopeScalingKind::kLinear
           : type == "llama3" ? RopeScalingKind::kLlama3
                              : RopeScalingKind::kYarn;
  KVRING_ASSIGN_OR_RETURN(s.factor, Positive(rope, "factor"));
  KVRING_ASSIGN_OR_RETURN(s.original_context,
                          PositiveOr(rope, "original_max_position_embeddings", c.context_length));
  if (s.kind == RopeScalingKind::kLlama3) {
    KVRING_ASSIGN_OR_RETURN(s.low_freq_factor, Positive(rope, "low_freq_factor"));
    KVRING_ASSIGN_OR_RETURN(s.high_freq_factor, Positive(rope, "high_freq_factor"));
    if (s.high_freq_factor <= s.low_freq_factor)
      return rope.Bad("high_freq_factor", "is not above the low one");
  }
  KVRING_ASSIGN_OR_RETURN(s.beta_fast, PositiveOr(rope, "beta_fast", s.beta_fast));
  KVRING_ASSIGN_OR_RETURN(s.beta_slow, PositiveOr(rope, "beta_slow", s.beta_slow));
  if (rope.Find("attention_factor").has_value()) {
    KVRING_ASSIGN_OR_RETURN(s.attention_factor, PositiveOr(rope, "attention_factor", 1));
  }
  return s;
}

absl::Status ReadRope(const JsonNode& keys, ModelConfig& c) {
  c.rope_pairs = kernels::RopePairs::kHalves;
  auto scaled = keys.Find("rope_parameters");
  if (!scaled.has_value()) scaled = keys.Find("rope_scaling");
  if (scaled.has_value() && !scaled->IsObject()) return scaled->Bad("is no object");
  const JsonNode& rope = scaled.has_value() ? *scaled : keys;
  KVRING_ASSIGN_OR_RETURN(const double theta, PositiveOr(keys, "rope_theta", 10000));
  KVRING_ASSIGN_OR_RETURN(c.rope_theta, PositiveOr(rope, "rope_theta", theta));
  if (c.rope_theta < 1) return keys.Bad("rope_theta", "is below 1");
  KVRING_ASSIGN_OR_RETURN(const double turned, PositiveOr(keys, "partial_rotary_factor", 1));
  if (turned != 1) return keys.Unsupported("partial_rotary_factor", absl::StrCat(turned));
  RopeScaling scaling;
  if (scaled.has_value()) {
    KVRING_ASSIGN_OR_RETURN(scaling, ReadScaling(rope, c));
  }
  c.rope_frequencies = ScaledFrequencies(scaling, c.head_dim, c.rope_theta);
  c.rope_magnitude = RopeMagnitude(scaling);
  return absl::OkStatus();
}

absl::Status ReadLayerTypes(const JsonNode& types, int32_t window, std::vector<int32_t>& windows) {
  KVRING_ASSIGN_OR_RETURN(const auto array, types.Array());
  if (array.size() != windows.size()) return types.Bad("has not one entry per layer");
  size_t i = 0;
  for (const auto element : array) {
    const JsonNode layer = types.Element(i, element);
    KVRING_ASSIGN_OR_RETURN(const std::string type, layer.String());
    if (type != "sliding_attention" && type != "full_attention") return layer.Unsupported(type);
    windows[i++] = type == "sliding_attention" ? window : 0;
  }
  return absl::OkStatus();
}

// Which layers have the window: those that layer_types names, else (Qwen2) those from max_window_layers on.
absl::Status ReadWindow(const JsonNode& keys, const std::string& type, ModelConfig& c) {
  const bool qwen = type != "mistral";
  KVRING_ASSIGN_OR_RETURN(const bool used, keys.BoolOr("use_sliding_window", !qwen));
  if (type == "llama" || !used || !keys.Find("sliding_window").has_value()) return absl::OkStatus();
  KVRING_ASSIGN_OR_RETURN(const int32_t window, Dimension(keys, "sliding_window"));
  KVRING_ASSIGN_OR_RETURN(const int32_t first, qwen ? DimensionOr(keys, "max_window_layers", 28) : 0);
  std::vector<int32_t> windows;
  for (int32_t i = 0; i < c.layers; ++i) windows.push_back(i >= first ? window : 0);
  if (const auto types = keys.Find("layer_types"); types.has_value()) {
    KVRING_RETURN_IF_ERROR(ReadLayerTypes(*types, window, windows));
  }
  const bool all_same =
      std::all_of(windows.begin(), windows.end(), [&](int32_t w) { return w == windows[0]; });
  if (all_same) {
    c.window = windows[0];
  } else {
    c.layer_windows = std::move(windows);
  }
  return absl::OkStatus();
}

absl::Status ReadGpt2(const JsonNode& keys, ModelConfig& c) {
  KVRING_ASSIGN_OR_RETURN(c.layers, Dimension(keys, "n_layer"));
  KVRING_ASSIGN_OR_RETURN(c.width, Dimension(keys, "n_embd"));
  KVRING_ASSIGN_OR_RETURN(c.heads, Dimension(keys, "n_head"));
  KVRING_ASSIGN_OR_RETURN(c.context_length, Dimension(keys, "n_positions"));
  KVRING_ASSIGN_OR_RETURN(c.vocab_size, Dimension(keys, "vocab_size"));
  KVRING_ASSIGN_OR_RETURN(c.ffn_width, DimensionOr(keys, "n_inner", 4 * c.width));
  if (c.width % c.heads != 0 || c.width / c.heads % 2 != 0)
    return keys.Bad("n_head", "gives no even head dimension");
  c.kv_heads = c.heads;
  c.head_dim = c.width / c.heads;
  KVRING_ASSIGN_OR_RETURN(const double epsilon, PositiveOr(keys, "layer_norm_epsilon", 1e-5));
  c.norm_epsilon = static_cast<float>(epsilon);
  c.norm = NormKind::kLayer;
  c.positions = PositionKind::kLearned;
  c.feed_forward = FeedForwardKind::kGelu;
  KVRING_ASSIGN_OR_RETURN(const std::string act, keys.StringOr("activation_function", "gelu_new"));
  if (act != "gelu_new") return keys.Unsupported("activation_function", act);
  KVRING_ASSIGN_OR_RETURN(const bool scaled, keys.BoolOr("scale_attn_weights", true));
  KVRING_ASSIGN_OR_RETURN(const bool by_layer, keys.BoolOr("scale_attn_by_inverse_layer_idx", false));
  if (!scaled || by_layer) return keys.Unsupported("scale_attn_weights", "another scaling");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HfConfig> ParseHfConfig(std::string_view text, const std::string& name) {
  KVRING_ASSIGN_OR_RETURN(const JsonFile file, JsonFile::Parse(text, name));
  const JsonNode keys = file.root();
  HfConfig config;
  KVRING_ASSIGN_OR_RETURN(const std::string type, keys.StringOr("model_type", ""));
  ModelConfig& model = config.model;
  model.architecture = type == "mistral" ? "llama" : type;
  if (keys.Find("tie_word_embeddings").has_value()) {
    KVRING_ASSIGN_OR_RETURN(config.tied, keys.BoolOr("tie_word_embeddings", true));
  }
  if (type == "gpt2") {
    KVRING_RETURN_IF_ERROR(ReadGpt2(keys, model));
    return config;
  }
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3") {
    return keys.Unsupported("model_type", type.empty() ? "absent" : type);
  }
  KVRING_RETURN_IF_ERROR(ReadShape(keys, model));
  KVRING_RETURN_IF_ERROR(ReadRope(keys, model));
  KVRING_RETURN_IF_ERROR(ReadWindow(keys, type, model));
  return config;
}

}  // namespace kvring::replica
