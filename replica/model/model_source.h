// ModelSource: a model on disk, opened and checked: its shape and its tensors under the names of GGUF, views
// into mapped files that it owns. A path is a .gguf file or a directory in the Hugging Face layout:
// config.json and model.safetensors, or its shards with model.safetensors.index.json. There, the output
// matrix is the embedding when tie_word_embeddings is true, or absent and the file has no lm_head; false
// without lm_head is an error. Move-only; immutable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"
#include "replica/model/model_weights.h"
#include "replica/model/safetensors.h"

namespace kvring::replica {

class ModelSource {
 public:
  static absl::StatusOr<ModelSource> Open(const std::string& path);
  static absl::StatusOr<ModelSource> FromGguf(GgufFile file);

  const ModelConfig& config() const { return config_; }
  const ModelTensors& tensors() const { return tensors_; }

 private:
  static absl::StatusOr<ModelSource> OpenDirectory(const std::string& path);

  ModelConfig config_;
  ModelTensors tensors_;
  std::optional<GgufFile> gguf_;
  std::vector<SafetensorsFile> shards_;
};

}  // namespace kvring::replica
