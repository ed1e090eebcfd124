// CudaExecutor: runs a model on a CUDA device: all weights in bf16, the residual stream and sums in f32, keys
// and values in bf16 in a pool of blocks on the device. A step is one upload of its rows and tables, the
// kernels of each layer in one stream, and one download of the logits asked for. On a host without CUDA the
// same code runs on the host shim (kernels/cuda/shim). Used from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/paged_kv.h"
#include "kernels/rope.h"
#include "replica/engine/executor.h"
#include "replica/model/model_config.h"
#include "replica/model/model_source.h"
#include "replica/model/model_weights.h"

namespace kvring::replica {

struct CudaOptions {
  int device = 0;
  /// Room of the KV pool; 0: nine tenths of what is free once the weights are there. Rounded down to whole
  /// blocks.
  int64_t kv_tokens = 0;
  int32_t block_size = 16;
  int32_t threads = 2;  // of the host, for reading the weights
};

class CudaExecutor : public Executor {
 public:
  /// Errors: of the file and its tensors, no such device, out of device memory (what was wanted and what is
  /// free), options that name a field.
  static absl::StatusOr<std::unique_ptr<CudaExecutor>> Load(const std::string& path,
                                                            const CudaOptions& options);
  static absl::StatusOr<std::unique_ptr<CudaExecutor>> Load(const ModelSource& source,
                                                            const CudaOptions& options);

  const ExecutorLimits& limits() const override { return limits_; }
  absl::Status Execute(const Batch& batch, StepOutput& output) override;

  const ModelConfig& config() const { return config_; }

 private:
  using Floats = kernels::cuda::DeviceArray<float>;
  using Halves = kernels::cuda::DeviceArray<uint16_t>;
  using Integers = kernels::cuda::DeviceArray<int32_t>;

  struct Norm {
    Floats weight;
    Floats bias;
  };
  struct Linear {
    Halves weights;  // outputs x inputs
    Floats bias;
    int outputs = 0;
    int inputs = 0;
  };
  struct Layer {
    Norm attention_norm;
    Linear q;
    Linear k;
    Linear v;
    Floats q_norm;
    Floats k_norm;
    Linear o;
    Norm ffn_norm;
    Linear gate;
    Linear up;
    Linear down;
  };
  /// The step's rows, as uploaded.
  struct Rows {
    std::vector<int32_t> token;
    std::vector<int32_t> position;
    std::vector<int32_t> block;
    std::vector<int32_t> slot;
    std::vector<int32_t> table;   // where the row's table begins in tables
    std::vector<int32_t> tables;  // one after another
    std::vector<int32_t> wanted;  // rows whose logits are asked for
  };

  CudaExecutor(std::unique_ptr<kernels::cuda::Stream> stream, ModelConfig config);
  absl::Status LoadWeights(const ModelSource& source, int32_t threads);
  absl::Status MakePool(const CudaOptions& options);
  absl::Status Upload(const LinearWeights& from, Linear& to);
  absl::Status Upload(const NormWeights& from, Norm& to);

  void CopyBlock(const BlockCopy& copy);
  void PlanRows(const Batch& batch);
  absl::Status UploadRows();
  absl::Status MakeRoom();
  absl::Status GrowRope(int32_t positions);
  void RunLayer(int32_t layer, const kernels::cuda::StepRows& rows);
  void Normalise(const Norm& norm, const float* x, int rows);
  void Multiply(const Linear& linear, const uint16_t* x, float* y, int rows, bool add);
  absl::Status Logits(StepOutput& output);

  std::unique_ptr<kernels::cuda::Stream> stream_;
  ModelConfig config_;
  ExecutorLimits limits_;
  kernels::RopeTable rope_;
  int32_t rope_positions_ = 0;
  Floats rope_rows_;

  Halves embedding_;
  Floats positions_;
  std::vector<Layer> layers_;
  Norm output_norm_;
  Linear output_;

  Halves kv_data_;
  kernels::cuda::PagedKv kv_{};

  Rows rows_;
  int32_t room_rows_ = 0;  // that the arrays below have
  Integers row_numbers_;   // token, position, block, slot, table: room_rows_ each
  Integers tables_;
  Integers wanted_;
  Floats x_;
  Floats q_;
  Floats k_;
  Floats v_;
  Floats gate_;
  Floats up_;
  Halves normed_;
  Halves attended_;
  Halves hidden_;
  int spans_ = 1;  // that this step splits contexts into
  Floats states_;
  Floats wanted_rows_;
  Floats device_logits_;
  std::vector<float> logits_;
};

}  // namespace kvring::replica
