// ModelConfig from a Hugging Face config.json: model types llama, mistral, qwen2, qwen3 and gpt2,
// rope_scaling or rope_parameters (default, linear, llama3, yarn), windows of all or some layers. What is not
// built in is Unimplemented, never ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "replica/model/model_config.h"

namespace kvring::replica {

struct HfConfig {
  ModelConfig model;
  std::optional<bool> tied;  // tie_word_embeddings, where the file says it
};

/// `name` stands for the file in errors, which name the key.
absl::StatusOr<HfConfig> ParseHfConfig(std::string_view text, const std::string& name);

}  // namespace kvring::replica
