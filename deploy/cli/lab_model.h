// The models of `kvring lab`: a file or directory, or "gpt2-124m", GPT-2's smallest shape with random weights
// made from a seed, since the essay's experiments ask what a cache costs and saves, not what the model says.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "replica/model/cpu_executor.h"

namespace kvring::cli {

struct LabModel {
  std::string name;
  std::unique_ptr<replica::CpuExecutor> executor;
};

struct LabModelOptions {
  std::string model;  // a GGUF file, a directory, or gpt2-124m
  std::string dtype =
      "f32";  // of keys, values and arithmetic: f32 or bf16 (then with the file's own 4- and 8-bit weights)
  int64_t kv_tokens = 1024;
  int32_t threads = 2;
  std::optional<int32_t> window;
};

/// Errors: the model's own, or that its random weights cannot be written.
absl::StatusOr<LabModel> LoadLabModel(const LabModelOptions& options);

/// A directory that LoadLabModel can read: config.json and model.safetensors (bf16, normal with the standard
/// deviation 0.02 that GPT-2 starts from; norms are ones and zeros).
absl::Status WriteRandomGpt2(const std::string& directory, uint64_t seed);

}  // namespace kvring::cli
