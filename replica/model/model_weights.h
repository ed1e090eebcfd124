// ModelWeights: the weights of a model packed for the kernels, once, at load. kFp32 dequantises everything
// (the exact path); kFast keeps the file's 4- and 8-bit blocks (Q4_0, Q4_1, Q8_0) and rounds the other types
// to bf16; kBf16Rows rounds everything to bf16, row by row, for a device. A missing output matrix means that
// it is tied to the embedding. Parts that a family lacks are empty. Errors name the file and the tensor; a
// tensor that no part uses is one. Immutable after Load.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/packed_matrix.h"
#include "kernels/thread_pool.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"

namespace kvring::replica {

enum class Precision { kFp32, kFast, kBf16Rows };

/// The tensors of a model under the names of GGUF, whatever file they come from.
struct ModelTensors {
  std::string file;  // for errors
  std::map<std::string, GgufTensor, std::less<>> by_name;
  /// What the file calls a tensor, for errors; null: the same.
  std::string (*name_in_file)(std::string_view ours) = nullptr;
};
ModelTensors TensorsOf(const GgufFile& file);

struct NormWeights {
  std::vector<float> weight;
  std::vector<float> bias;
};

struct LinearWeights {
  kernels::PackedMatrix matrix;
  std::vector<float> bias;
};

struct LayerWeights {
  NormWeights attention_norm;
  LinearWeights q;
  LinearWeights k;
  LinearWeights v;
  std::vector<float> q_norm;  // RMS over each head's dimensions, before RoPE
  std::vector<float> k_norm;
  LinearWeights o;
  NormWeights ffn_norm;
  LinearWeights gate;
  LinearWeights up;
  LinearWeights down;
};

struct ModelWeights {
  GgufTensor embedding;          // read row by row from the file, which outlives this
  std::vector<float> positions;  // context_length x width where positions are learned
  std::vector<LayerWeights> layers;
  NormWeights output_norm;
  kernels::PackedMatrix output;

  static absl::StatusOr<ModelWeights> Load(const ModelTensors& tensors, const ModelConfig& config,
                                           Precision precision, kernels::ThreadPool& threads);
};

}  // namespace kvring::replica
