// Transformer: the forward pass of a pre-norm decoder over a Batch: all tokens of all its sequences are one
// matrix of rows. Per layer
//   x += O · attention(rope(Q · n), rope(K · n), V · n),  n = norm(x);   x += down · act(gate · n, up · n)
// and logits = output · norm(x) for the rows asked for; norm is RMS or LayerNorm, act SwiGLU or GELU (then
// without gate), positions are RoPE or learned and added to x; biases and norms of Q and K per head where the
// weights have them. The last layer computes past K and V only rows whose logits are asked for. Results are
// batch invariant: a token's bits depend on its sequence alone, not on chunking or on what runs beside it.
// Not thread-safe; uses the pool given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activations.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/kv_pool.h"
#include "kernels/rope.h"
#include "kernels/thread_pool.h"
#include "replica/engine/executor.h"
#include "replica/model/model_config.h"
#include "replica/model/model_weights.h"

namespace kvring::replica {

class Transformer {
 public:
  /// What the pass runs on; all of it outlives the transformer.
  struct Resources {
    const ModelConfig* config;
    const ModelWeights* weights;
    kernels::KvPool* kv;
    kernels::ThreadPool* threads;
    kernels::Isa isa;
  };
  explicit Transformer(const Resources& resources);

  /// Logits of the rows asked for, rows x vocab_size, valid until the next call.
  std::span<const float> Forward(const Batch& batch);

 private:
  /// One token of the batch.
  struct Row {
    TokenId token;
    int32_t position;
    BlockId block;
    int32_t slot;
  };

  void PlanRows(const Batch& batch);
  void PlanAttention(const Batch& batch, bool wanted_rows_alone);
  void ResizeActivations();
  void EmbedTokens();
  void AttentionBlock(int32_t layer);
  /// Of the last layer's attention what every row must do, its keys and values; then drops the rows that
  /// nobody asked for.
  void StoreKeysAndKeepWantedRows(const Batch& batch);
  void Attend(int32_t layer);
  void FeedForwardBlock(int32_t layer);
  std::span<const float> OutputLogits();

  void Normalise(const NormWeights& norm, bool quantise);
  void FinishQuery(const LayerWeights& w, int64_t r);
  void FinishAndStoreKey(int32_t layer, int64_t r);
  /// The norm of each head and the rotation.
  void FinishHeads(const std::vector<float>& norm, int32_t heads, int32_t position, float* x) const;
  /// residual += linear · x.
  void AddToResidual(const LinearWeights& linear, const kernels::Activations& x);
  /// body(row) for every row of the batch, spread over the threads when there are many.
  void ForRows(int64_t rows, absl::FunctionRef<void(int64_t)> body);
  float* residual(int64_t row) { return residual_.as<float>() + row * config_.width; }

  const ModelConfig& config_;
  const ModelWeights& weights_;
  kernels::KvPool& kv_;
  kernels::ThreadPool& threads_;
  kernels::Isa isa_;
  kernels::RopeTable rope_;
  kernels::Attention attention_;

  std::vector<Row> rows_;
  std::vector<int64_t> wanted_rows_;  // whose logits are asked for
  std::vector<kernels::AttentionRows> attention_rows_;
  kernels::AlignedBuffer residual_;
  kernels::AlignedBuffer q_;
  kernels::AlignedBuffer k_;
  kernels::AlignedBuffer v_;
  kernels::AlignedBuffer gate_;
  kernels::AlignedBuffer up_;
  kernels::AlignedBuffer logits_;
  kernels::Activations normed_;
  kernels::Activations attended_;
  kernels::Activations hidden_;
};

}  // namespace kvring::replica
