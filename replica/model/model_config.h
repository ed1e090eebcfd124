// ModelConfig: the shape of a decoder-only transformer, read and checked from a GGUF file's metadata or from
// a config.json (hf_config.h). What differs between families is a field here, not a class: a family is added
// by reading its keys and, where it has a new part, by adding the part to the transformer. Biases and the
// norms of Q and K are parts of the weights: there when the file has them. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/rope.h"
#include "replica/model/gguf.h"

namespace kvring::replica {

enum class NormKind { kRms, kLayer };
enum class PositionKind { kRope, kLearned };
enum class FeedForwardKind { kSwiGlu, kGelu };

struct ModelConfig {
  std::string architecture;  // "llama" (Llama, Mistral), "qwen2", "qwen3", "gpt2"
  std::string name;          // general.name, may be empty
  int32_t layers = 0;
  int32_t width = 0;  // of the residual stream
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn_width = 0;
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  int32_t window = 0;  // sliding-window attention of every layer, 0: none
  /// Windows per layer (0: none) of a model that mixes them, else empty; then `window` is 0, since blocks
  /// hold all layers and stay as long as any layer needs them.
  std::vector<int32_t> layer_windows;
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 0;
  FeedForwardKind feed_forward = FeedForwardKind::kSwiGlu;
  PositionKind positions = PositionKind::kRope;
  double rope_theta = 10000;
  std::vector<double> rope_frequencies;  // head_dim/2, scaling included
  double rope_magnitude = 1;
  kernels::RopePairs rope_pairs = kernels::RopePairs::kAdjacent;

  int32_t q_width() const { return heads * head_dim; }
  int32_t kv_width() const { return kv_heads * head_dim; }
  int32_t window_of(int32_t layer) const {
    return layer_windows.empty() ? window : layer_windows[static_cast<size_t>(layer)];
  }
};

// Larger numbers are no model that could be meant; the bound keeps all later products far inside int64.
constexpr int64_t kMaxModelDimension = 1 << 24;

/// Errors name the file and the key. A family or a scaling that is not built in is Unimplemented, never
/// ignored.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace kvring::replica
