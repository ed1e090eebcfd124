// ModelWeights: the weights of a model packed for the kernels, once, at load. kFp32 dequantises everything
// (the exact path); kFast keeps the file's 4- and 8-bit blocks (Q4_0, Q4_1, Q8_0) and rounds the other types
// to bf16. A missing output matrix means that it is tied to the embedding. Errors name the file and the
// tensor. Immutable after Load.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/packed_matrix.h"
#include "kernels/thread_pool.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"

namespace kvring::replica {

enum class Precision { kFp32, kFast };

struct LayerWeights {
  std::vector<float> attention_norm;
  kernels::PackedMatrix q;
  kernels::PackedMatrix k;
  kernels::PackedMatrix v;
  kernels::PackedMatrix o;
  std::vector<float> ffn_norm;
  kernels::PackedMatrix gate;
  kernels::PackedMatrix up;
  kernels::PackedMatrix down;
};

struct ModelWeights {
  const GgufTensor* embedding = nullptr;  // read row by row from the file, which outlives this
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  kernels::PackedMatrix output;

  static absl::StatusOr<ModelWeights> Load(const GgufFile& file, const ModelConfig& config,
                                           Precision precision, kernels::ThreadPool& threads);
};

}  // namespace kvring::replica
