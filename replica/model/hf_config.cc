#include "replica/model/hf_config.h"

#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/rope_scaling.h"

namespace kvring::replica {
namespace {

namespace json = boost::json;

// Keys of one object; a null counts as absent.
class Keys {
 public:
  Keys(std::string file, const json::object& object) : file_(std::move(file)), object_(object) {}

  const json::value* Find(const char* key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  const json::object* Object(const char* key) const {
    const json::value* value = Find(key);
    return value != nullptr ? value->if_object() : nullptr;
  }
  absl::StatusOr<int32_t> Dimension(const char* key) const {
    const json::value* value = Find(key);
    if (value == nullptr) return absl::NotFoundError(absl::StrCat(file_, ": \"", key, "\" is missing"));
    const int64_t* number = value->if_int64();
    if (number != nullptr && *number >= 1 && *number <= kMaxModelDimension)
      return static_cast<int32_t>(*number);
    return Bad(key, absl::StrCat("is no number from 1 to ", kMaxModelDimension));
  }
  absl::StatusOr<int32_t> DimensionOr(const char* key, int32_t otherwise) const {
    if (Find(key) == nullptr) return otherwise;
    return Dimension(key);
  }
  absl::StatusOr<double> NumberOr(const char* key, double otherwise) const {
    const json::value* value = Find(key);
    if (value == nullptr) return otherwise;
    boost::system::error_code error;
    const double number = value->to_number<double>(error);
    if (!error && number > 0 && number < 1e12) return number;
    return Bad(key, "is no positive number");
  }
  absl::StatusOr<std::string> StringOr(const char* key, const char* otherwise) const {
    const json::value* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) return Bad(key, "is no string");
    return std::string(value->get_string().data(), value->get_string().size());
  }
  absl::StatusOr<bool> BoolOr(const char* key, bool otherwise) const {
    const json::value* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) return Bad(key, "is neither true nor false");
    return value->get_bool();
  }
  absl::Status Bad(const char* key, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": \"", key, "\" ", what));
  }
  absl::Status Unsupported(const char* key, const std::string& value) const {
    return absl::UnimplementedError(absl::StrCat(file_, ": \"", key, "\": ", value, " is not supported"));
  }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  const json::object& object_;
};

absl::Status ReadShape(const Keys& keys, ModelConfig& c) {
  KVRING_ASSIGN_OR_RETURN(c.layers, keys.Dimension("num_hidden_layers"));
  KVRING_ASSIGN_OR_RETURN(c.width, keys.Dimension("hidden_size"));
  KVRING_ASSIGN_OR_RETURN(c.ffn_width, keys.Dimension("intermediate_size"));
  KVRING_ASSIGN_OR_RETURN(c.context_length, keys.Dimension("max_position_embeddings"));
  KVRING_ASSIGN_OR_RETURN(c.vocab_size, keys.Dimension("vocab_size"));
  KVRING_ASSIGN_OR_RETURN(c.heads, keys.Dimension("num_attention_heads"));
  KVRING_ASSIGN_OR_RETURN(c.kv_heads, keys.DimensionOr("num_key_value_heads", c.heads));
  if (c.heads % c.kv_heads != 0) return keys.Bad("num_key_value_heads", "does not divide the heads");
  if (keys.Find("head_dim") == nullptr && c.width % c.heads != 0) {
    return keys.Bad("num_attention_heads", "does not divide hidden_size");
  }
  KVRING_ASSIGN_OR_RETURN(c.head_dim, keys.DimensionOr("head_dim", c.width / c.heads));
  if (c.head_dim % 2 != 0) return keys.Bad("head_dim", "is odd");
  KVRING_ASSIGN_OR_RETURN(const double epsilon, keys.NumberOr("rms_norm_eps", 1e-6));
  c.norm_epsilon = static_cast<float>(epsilon);
  KVRING_ASSIGN_OR_RETURN(const std::string act, keys.StringOr("hidden_act", "silu"));
  return act == "silu" ? absl::OkStatus() : keys.Unsupported("hidden_act", act);
}

absl::StatusOr<RopeScaling> ReadScaling(const Keys& rope, const ModelConfig& c) {
  RopeScaling s;
  KVRING_ASSIGN_OR_RETURN(const std::string old_type, rope.StringOr("type", "default"));
  KVRING_ASSIGN_OR_RETURN(const std::string type, rope.StringOr("rope_type", old_type.c_str()));
  if (type == "default") return s;
  if (type != "linear" && type != "llama3" && type != "yarn") return rope.Unsupported("rope_type", type);
  for (const char* key : {"mscale", "mscale_all_dim", "truncate"}) {
    if (rope.Find(key) != nullptr) return rope.Unsupported(key, "any value");
  }
  s.kind = type == "linear"   ? RopeScalingKind::kLinear
           : type == "llama3" ? RopeScalingKind::kLlama3
                              : RopeScalingKind::kYarn;
  KVRING_ASSIGN_OR_RETURN(s.factor, rope.NumberOr("factor", 1));
  KVRING_ASSIGN_OR_RETURN(s.original_context,
                          rope.NumberOr("original_max_position_embeddings", c.context_length));
  KVRING_ASSIGN_OR_RETURN(s.low_freq_factor, rope.NumberOr("low_freq_factor", s.low_freq_factor));
  KVRING_ASSIGN_OR_RETURN(s.high_freq_factor, rope.NumberOr("high_freq_factor", s.high_freq_factor));
  KVRING_ASSIGN_OR_RETURN(s.beta_fast, rope.NumberOr("beta_fast", s.beta_fast));
  KVRING_ASSIGN_OR_RETURN(s.beta_slow, rope.NumberOr("beta_slow", s.beta_slow));
  if (rope.Find("attention_factor") != nullptr) {
    KVRING_ASSIGN_OR_RETURN(s.attention_factor, rope.NumberOr("attention_factor", 1));
  }
  return s;
}

absl::Status ReadRope(const Keys& keys, ModelConfig& c) {
  c.rope_pairs = kernels::RopePairs::kHalves;
  const char* key = keys.Object("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const json::object* object = keys.Object(key);
  if (object == nullptr && keys.Find(key) != nullptr) return keys.Bad(key, "is no object");
  const json::object none;
  const Keys rope(absl::StrCat(keys.file(), ": ", key), object != nullptr ? *object : none);
  KVRING_ASSIGN_OR_RETURN(const double theta, keys.NumberOr("rope_theta", 10000));
  KVRING_ASSIGN_OR_RETURN(c.rope_theta, rope.NumberOr("rope_theta", theta));
  if (c.rope_theta < 1) return keys.Bad("rope_theta", "is below 1");
  KVRING_ASSIGN_OR_RETURN(const double turned, keys.NumberOr("partial_rotary_factor", 1));
  if (turned != 1) return keys.Unsupported("partial_rotary_factor", absl::StrCat(turned));
  KVRING_ASSIGN_OR_RETURN(const RopeScaling scaling, ReadScaling(rope, c));
  c.rope_frequencies = ScaledFrequencies(scaling, c.head_dim, c.rope_theta);
  c.rope_magnitude = RopeMagnitude(scaling);
  return absl::OkStatus();
}

// Which layers have the window: those that layer_types names, else (Qwen2) those from max_window_layers on.
absl::Status ReadWindow(const Keys& keys, const std::string& type, ModelConfig& c) {
  const bool qwen = type != "mistral";
  KVRING_ASSIGN_OR_RETURN(const bool used, keys.BoolOr("use_sliding_window", !qwen));
  if (type == "llama" || !used || keys.Find("sliding_window") == nullptr) return absl::OkStatus();
  KVRING_ASSIGN_OR_RETURN(const int32_t window, keys.Dimension("sliding_window"));
  KVRING_ASSIGN_OR_RETURN(const int32_t first, qwen ? keys.DimensionOr("max_window_layers", 28) : 0);
  std::vector<int32_t> windows;
  for (int32_t i = 0; i < c.layers; ++i) windows.push_back(i >= first ? window : 0);
  if (const json::value* types = keys.Find("layer_types"); types != nullptr) {
    if (!types->is_array() || types->get_array().size() != windows.size()) {
      return keys.Bad("layer_types", "has not one entry per layer");
    }
    for (size_t i = 0; i < windows.size(); ++i) {
      const json::value& layer = types->get_array()[i];
      if (layer != "sliding_attention" && layer != "full_attention") {
        return keys.Unsupported("layer_types", json::serialize(layer));
      }
      windows[i] = layer == "sliding_attention" ? window : 0;
    }
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

absl::Status ReadGpt2(const Keys& keys, ModelConfig& c) {
  KVRING_ASSIGN_OR_RETURN(c.layers, keys.Dimension("n_layer"));
  KVRING_ASSIGN_OR_RETURN(c.width, keys.Dimension("n_embd"));
  KVRING_ASSIGN_OR_RETURN(c.heads, keys.Dimension("n_head"));
  KVRING_ASSIGN_OR_RETURN(c.context_length, keys.Dimension("n_positions"));
  KVRING_ASSIGN_OR_RETURN(c.vocab_size, keys.Dimension("vocab_size"));
  KVRING_ASSIGN_OR_RETURN(c.ffn_width, keys.DimensionOr("n_inner", 4 * c.width));
  if (c.width % c.heads != 0 || c.width / c.heads % 2 != 0)
    return keys.Bad("n_head", "gives no even head dimension");
  c.kv_heads = c.heads;
  c.head_dim = c.width / c.heads;
  KVRING_ASSIGN_OR_RETURN(const double epsilon, keys.NumberOr("layer_norm_epsilon", 1e-5));
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
  boost::system::error_code error;
  const json::value root = json::parse({text.data(), text.size()}, error);
  if (error || !root.is_object())
    return absl::InvalidArgumentError(absl::StrCat(name, ": is no JSON object"));
  const Keys keys(name, root.get_object());
  HfConfig config;
  KVRING_ASSIGN_OR_RETURN(const std::string type, keys.StringOr("model_type", ""));
  ModelConfig& model = config.model;
  model.architecture = type == "mistral" ? "llama" : type;
  if (keys.Find("tie_word_embeddings") != nullptr) {
    KVRING_ASSIGN_OR_RETURN(config.tied, keys.BoolOr("tie_word_embeddings", true));
  }
  if (type == "gpt2") {
    KVRING_RETURN_IF_ERROR(ReadGpt2(keys, model));
    return config;
  }
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3") {
    return keys.Unsupported("model_type", absl::StrCat("\"", type, "\""));
  }
  KVRING_RETURN_IF_ERROR(ReadShape(keys, model));
  KVRING_RETURN_IF_ERROR(ReadRope(keys, model));
  KVRING_RETURN_IF_ERROR(ReadWindow(keys, type, model));
  return config;
}

}  // namespace kvring::replica
