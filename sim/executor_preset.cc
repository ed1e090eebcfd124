#include "sim/executor_preset.h"

#include "replica/kv/kv_size.h"

namespace kvring::sim {
namespace {

struct Card {
  const char* name;
  double flops;
  double bytes_per_second;
  double memory_bytes;
};
struct Model {
  const char* name;
  double parameters;
  replica::KvShape shape;
  int cards;
};

constexpr double kPrefillShare = 0.45;
constexpr double kDecodeShare = 0.70;
constexpr double kHostNs = 2e6;
constexpr double kMemoryShare = 0.90;
constexpr double kWeightBytes = 2;  // bf16

constexpr Card kCards[] = {{"a100", 312e12, 2.0e12, 80e9},
                           {"h100", 989e12, 3.35e12, 80e9},
                           {"h200", 989e12, 4.8e12, 141e9},
                           {"l40s", 362e12, 0.864e12, 48e9}};
constexpr Model kModels[] = {{"8b", 8.03e9, {.layers = 32, .kv_heads = 8, .head_dim = 128}, 1},
                             {"70b", 70.6e9, {.layers = 80, .kv_heads = 8, .head_dim = 128}, 4}};

ExecutorPreset MakePreset(const Card& card, const Model& model) {
  const double kv_bytes = static_cast<double>(replica::KvBytesPerToken(model.shape));
  const double weights = model.parameters * kWeightBytes;
  const double bandwidth = card.bytes_per_second * kDecodeShare * model.cards;
  const double per_token = 2 * model.parameters / (card.flops * kPrefillShare * model.cards) * 1e9;
  const double room = card.memory_bytes * kMemoryShare * model.cards - weights;
  return {.name = std::string(card.name) + "-" + model.name,
          .cost = {.base_ns = kHostNs + weights / bandwidth * 1e9,
                   .per_prefill_token_ns = per_token,
                   .per_decode_sequence_ns = per_token,
                   .per_context_token_ns = kv_bytes / bandwidth * 1e9},
          .kv_tokens = static_cast<int64_t>(room / kv_bytes)};
}

}  // namespace

std::vector<ExecutorPreset> ExecutorPresets() {
  std::vector<ExecutorPreset> presets;
  for (const Card& card : kCards) {
    for (const Model& model : kModels) {
      ExecutorPreset preset = MakePreset(card, model);
      if (preset.kv_tokens > 0) presets.push_back(std::move(preset));
    }
  }
  return presets;
}

std::optional<ExecutorPreset> FindExecutorPreset(std::string_view name) {
  for (ExecutorPreset& preset : ExecutorPresets()) {
    if (preset.name == name) return std::move(preset);
  }
  return std::nullopt;
}

}  // namespace kvring::sim
