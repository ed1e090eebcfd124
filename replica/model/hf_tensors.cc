#include "replica/model/hf_tensors.h"

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr NamePair kLlamaNames[] = {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"input_layernorm", "attn_norm"},
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"}};
constexpr NamePair kGpt2Names[] = {{"wte", "token_embd"},          {"wpe", "position_embd"},
                                   {"ln_f", "output_norm"},        {"lm_head", "output"},
                                   {"ln_1", "attn_norm"},          {"attn.c_attn", "attn_qkv"},
                                   {"attn.c_proj", "attn_output"}, {"ln_2", "ffn_norm"},
                                   {"mlp.c_fc", "ffn_up"},         {"mlp.c_proj", "ffn_down"}};

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool IsBuffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// "model.layers.3.mlp.up_proj.bias" is layer prefix, part and kind.
std::string GgufName(std::string_view name, bool gpt2) {
  std::string_view rest = name;
  if (gpt2) TakePrefix(rest, "transformer.");
  std::string prefix;
  if (TakePrefix(rest, gpt2 ? "h." : "model.layers.")) {
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::string(name);
    prefix = absl::StrCat("blk.", std::string(rest.substr(0, dot)), ".");
    rest.remove_prefix(dot + 1);
  }
  const size_t kind = rest.rfind('.');
  if (kind == std::string_view::npos) return std::string(name);
  const std::span<const NamePair> names = gpt2 ? std::span<const NamePair>(kGpt2Names) : kLlamaNames;
  for (const auto& [theirs, ours] : names) {
    if (rest.substr(0, kind) == theirs)
      return absl::StrCat(prefix, std::string(ours), std::string(rest.substr(kind)));
  }
  return std::string(name);
}

// The reverse of GgufName for the names that it knows.
std::string NameOf(std::string_view ours, std::string_view layers, std::span<const NamePair> names) {
  std::string_view rest = ours;
  std::string prefix;
  if (TakePrefix(rest, "blk.")) {
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) return std::string(ours);
    prefix = absl::StrCat(std::string(layers), std::string(rest.substr(0, dot + 1)));
    rest.remove_prefix(dot + 1);
  }
  const size_t kind = rest.rfind('.');
  for (const auto& [theirs, known] : names) {
    if (rest.substr(0, kind) == known && kind != std::string_view::npos)
      return absl::StrCat(prefix, std::string(theirs), std::string(rest.substr(kind)));
  }
  return std::string(ours);
}
std::string LlamaName(std::string_view ours) { return NameOf(ours, "model.layers.", kLlamaNames); }
std::string Gpt2Name(std::string_view ours) { return NameOf(ours, "h.", kGpt2Names); }

std::optional<TensorType> TypeOf(std::string_view dtype) {
  if (dtype == "F32") return TensorType::kF32;
  if (dtype == "F16") return TensorType::kF16;
  if (dtype == "BF16") return TensorType::kBF16;
  return std::nullopt;
}

// GPT-2's linear layers are stored as inputs x outputs.
bool IsTransposed(std::string_view name) {
  return name.ends_with("attn_qkv.weight") || name.ends_with("attn_output.weight") ||
         name.ends_with("ffn_up.weight") || name.ends_with("ffn_down.weight");
}

absl::StatusOr<GgufTensor> View(const std::string& where, const SafetensorsTensor& tensor, bool transposed) {
  const auto type = TypeOf(tensor.dtype);
  if (!type.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(where, " has type ", tensor.dtype, " (F32, F16 and BF16 are supported)"));
  }
  if (tensor.shape.empty() || tensor.shape.size() > 2 || tensor.data.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is no vector and no matrix"));
  }
  GgufTensor view{{}, *type, {tensor.shape.rbegin(), tensor.shape.rend()}, tensor.data};
  view.transposed = transposed && view.dims.size() == 2;
  if (view.transposed) std::swap(view.dims[0], view.dims[1]);
  return view;
}

absl::Status TieOutput(const HfConfig& config, ModelTensors& tensors) {
  if (config.tied.value_or(false)) {
    tensors.by_name.erase("output.weight");
  } else if (config.tied.has_value() && !tensors.by_name.contains("output.weight")) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensors.file,
        ": tensor \"lm_head.weight\" is missing and tie_word_embeddings is false; set it to true "
        "in config.json to use the embedding matrix"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelTensors> MapHfTensors(std::span<const SafetensorsFile> shards, const HfConfig& config,
                                          const std::string& name) {
  const bool gpt2 = config.model.architecture == "gpt2";
  ModelTensors tensors{name, {}, gpt2 ? Gpt2Name : LlamaName};
  for (const SafetensorsFile& shard : shards) {
    for (const auto& [theirs, tensor] : shard.tensors()) {
      if (IsBuffer(theirs)) continue;
      const std::string where = absl::StrCat(shard.name(), ": tensor \"", theirs, "\"");
      const std::string ours = GgufName(theirs, gpt2);
      KVRING_ASSIGN_OR_RETURN(GgufTensor view, View(where, tensor, gpt2 && IsTransposed(ours)));
      if (!tensors.by_name.emplace(ours, std::move(view)).second) {
        return absl::InvalidArgumentError(absl::StrCat(where, " is there twice"));
      }
    }
  }
  KVRING_RETURN_IF_ERROR(TieOutput(config, tensors));
  return tensors;
}

}  // namespace kvring::replica
