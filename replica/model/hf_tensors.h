// The tensors of a Hugging Face checkpoint under the names of GGUF: blk.0.attn_q.weight for
// model.layers.0.self_attn.q_proj.weight and so on. Pure.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "replica/model/hf_config.h"
#include "replica/model/model_weights.h"
#include "replica/model/safetensors.h"

namespace kvring::replica {

/// Names that no family knows keep theirs (and are refused by ModelWeights); buffers that are no weights are
/// left out. Errors: a tensor twice or of a type that is not F32, F16 or BF16; an output matrix that should
/// be there and is not. `name` stands for the checkpoint in errors; the views live as long as the shards.
absl::StatusOr<ModelTensors> MapHfTensors(std::span<const SafetensorsFile> shards, const HfConfig& config,
                                          const std::string& name);

}  // namespace kvring::replica
