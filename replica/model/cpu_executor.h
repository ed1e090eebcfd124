// CpuExecutor: runs a model on the CPU: weights packed once, both attention and
// matmuls on a pool of threads, keys and values in a pool of blocks. kFp32 is exact (weights and KV in f32).
// kFast keeps the file's 4- and 8-bit weights, quantises activations to int8 blocks of 32 and holds KV in
// bf16, or in f16 or int8 (kv_pool.h) where asked; it gives the exact path's greedy token wherever the exact
// margin between the best two logits exceeds kFastMarginBound (teacher-forced over the reference answers of
// SmolLM2-135M Q4_1; under a window of 32, which these weights were not trained for, up to 0.74 was missed).
// Results of both do not depend on chunking or batching. Used from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/isa.h"
#include "kernels/kv_pool.h"
#include "kernels/thread_pool.h"
#include "replica/engine/executor.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"
#include "replica/model/model_source.h"
#include "replica/model/model_weights.h"
#include "replica/model/transformer.h"

namespace kvring::replica {

constexpr float kFastMarginBound = 0.5F;
/// The same for fp32 weights with int8 keys and values. Perplexity of 1,035 tokens of plain prose
/// (kv_accuracy_test.cc): exact 24.853; int8 keys and values alone 24.866; fast 24.806 in bf16, 24.938 in
/// int8.
constexpr float kInt8KvMarginBound = 0.25F;

struct CpuOptions {
  int64_t kv_tokens = 16384;  // room of the KV pool; rounded down to whole blocks
  int32_t block_size = 16;    // multiples of 16 waste nothing
  int32_t threads = 2;
  Precision precision = Precision::kFast;
  kernels::Isa isa = kernels::BestIsa();
  std::optional<kernels::KvType> kv_type;  // absent: that of the precision
  std::optional<int32_t> window;  // sliding window of every layer instead of the model's own; 0: none
};

/// What keys and values are held in.
kernels::KvType KvTypeOf(const CpuOptions& options);
/// "f32", "f16", "bf16" or "int8"; InvalidArgument lists them.
absl::StatusOr<kernels::KvType> ParseKvType(std::string_view name);
/// Bytes of one token's keys and values in all layers, scales included.
int64_t KvBytesPerToken(const ModelConfig& config, kernels::KvType type);

class CpuExecutor : public Executor {
 public:
  /// Opens, checks and packs the model: a .gguf file, or a directory with config.json and *.safetensors.
  static absl::StatusOr<std::unique_ptr<CpuExecutor>> Load(const std::string& path,
                                                           const CpuOptions& options);
  static absl::StatusOr<std::unique_ptr<CpuExecutor>> Load(GgufFile file, const CpuOptions& options);
  static absl::StatusOr<std::unique_ptr<CpuExecutor>> Load(ModelSource source, const CpuOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  absl::Status Execute(const Batch& batch, StepOutput& output) override;

  const ModelConfig& config() const { return config_; }
  kernels::KvPool& kv_pool() { return kv_; }
  /// Of all that the bits of keys and values depend on: the weights (each tensor's name, shape and first and
  /// last bytes), precision, instruction set and the pool's layout.
  uint64_t kv_fingerprint() const { return kv_fingerprint_; }

 private:
  CpuExecutor(ModelSource source, ModelConfig config, const CpuOptions& options);
  absl::Status LoadWeights(Precision precision);

  ModelSource source_;
  ModelConfig config_;
  ExecutorLimits limits_;
  kernels::ThreadPool threads_;
  kernels::KvPool kv_;
  kernels::Isa isa_;
  uint64_t kv_fingerprint_;
  ModelWeights weights_;
  std::optional<Transformer> transformer_;
};

}  // namespace kvring::replica
