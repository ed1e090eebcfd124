// ModelConfig: the shape of a decoder-only transformer, read and checked from a model file's metadata. What
// differs between families is a field here, not a class: a family is added by reading its keys and, where it
// has a new part, by adding the part to the transformer. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/rope.h"
#include "replica/model/gguf.h"

namespace kvring::replica {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty
  int32_t layers = 0;
  int32_t width = 0;  // of the residual stream
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn_width = 0;
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  int32_t window = 0;  // sliding-window attention, 0: none
  float norm_epsilon = 0;
  double rope_theta = 10000;
  kernels::RopePairs rope_pairs = kernels::RopePairs::kAdjacent;

  int32_t q_width() const { return heads * head_dim; }
  int32_t kv_width() const { return kv_heads * head_dim; }
};

/// Errors name the file and the key. A family or a scaling that is not built in is Unimplemented, never
/// ignored.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace kvring::replica
