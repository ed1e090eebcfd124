#include "replica/model/transformer.h"

#include <cmath>

#include "common/check.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/swiglu.h"
#include "replica/model/dequantize.h"

namespace kvring::replica {
namespace {

constexpr int64_t kRowsPerTask = 8;

void Grow(kernels::AlignedBuffer& buffer, int64_t floats) {
  if (const auto bytes = static_cast<size_t>(floats) * 4; buffer.size_bytes() < bytes)
    buffer = kernels::AlignedBuffer(bytes);
}

}  // namespace

Transformer::Transformer(const Resources& resources)
    : config_(*resources.config),
      weights_(*resources.weights),
      kv_(*resources.kv),
      threads_(*resources.threads),
      isa_(resources.isa),
      rope_(config_.head_dim, config_.rope_theta),
      attention_(resources.isa) {}

std::span<const float> Transformer::Forward(const Batch& batch) {
  PlanRows(batch);
  EmbedTokens();
  PlanAttention(batch);
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    AttentionBlock(layer);
    FeedForwardBlock(layer);
  }
  return OutputLogits();
}

void Transformer::PlanRows(const Batch& batch) {
  rows_.clear();
  logit_rows_.clear();
  const int32_t block_size = kv_.shape().block_size;
  int32_t positions = 0;
  for (const SequenceStep& step : batch.steps) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    positions = std::max(positions, step.first_position + count);
    KVRING_CHECK(step.first_position + count <= static_cast<int64_t>(step.block_table.size()) * block_size);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = step.first_position + i;
      if (i >= step.logits_from) logit_rows_.push_back(static_cast<int64_t>(rows_.size()));
      rows_.push_back({step.tokens[static_cast<size_t>(i)], position,
                       step.block_table[static_cast<size_t>(position / block_size)], position % block_size});
    }
  }
  rope_.GrowTo(positions);
}

void Transformer::EmbedTokens() {
  const auto rows = static_cast<int64_t>(rows_.size());
  Grow(residual_, rows * config_.width);
  Grow(q_, rows * config_.q_width());
  Grow(k_, rows * config_.kv_width());
  Grow(v_, rows * config_.kv_width());
  Grow(gate_, rows * config_.ffn_width);
  Grow(up_, rows * config_.ffn_width);
  normed_.Resize(rows, config_.width);
  attended_.Resize(rows, config_.q_width());
  hidden_.Resize(rows, config_.ffn_width);
  ForRows(rows, [&](int64_t r) {
    const TokenId token = rows_[static_cast<size_t>(r)].token;
    KVRING_CHECK(token >= 0 && token < config_.vocab_size);
    DequantizeRow(*weights_.embedding, token, {residual(r), static_cast<size_t>(config_.width)});
  });
}

void Transformer::PlanAttention(const Batch& batch) {
  attention_rows_.clear();
  int64_t first = 0;
  for (const SequenceStep& step : batch.steps) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    if (count == 0) continue;
    attention_rows_.push_back({q_.as<float>() + first * config_.q_width(), attended_.row(first), count,
                               step.first_position, step.block_table});
    first += count;
  }
}

void Transformer::AttentionBlock(int32_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  Normalise(w.attention_norm, w.q.quantised() || w.k.quantised() || w.v.quantised());
  const kernels::MatMulOutput qkv[] = {{&w.q, q_.as<float>(), config_.q_width()},
                                       {&w.k, k_.as<float>(), config_.kv_width()},
                                       {&w.v, v_.as<float>(), config_.kv_width()}};
  kernels::MatMul(isa_, threads_, normed_, qkv);
  RotateAndStore(layer);
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  attention_.Run(threads_, {&kv_, layer, {config_.heads, scale, config_.window}}, attention_rows_);
  if (w.o.quantised()) ForRows(attended_.rows(), [&](int64_t r) { attended_.Quantize(isa_, r); });
  const kernels::MatMulOutput o[] = {{&w.o, residual_.as<float>(), config_.width, kernels::Store::kAdd}};
  kernels::MatMul(isa_, threads_, attended_, o);
}

void Transformer::FeedForwardBlock(int32_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  Normalise(w.ffn_norm, w.gate.quantised() || w.up.quantised());
  const kernels::MatMulOutput gate_up[] = {{&w.gate, gate_.as<float>(), config_.ffn_width},
                                           {&w.up, up_.as<float>(), config_.ffn_width}};
  kernels::MatMul(isa_, threads_, normed_, gate_up);
  ForRows(hidden_.rows(), [&](int64_t r) {
    const int64_t at = r * config_.ffn_width;
    kernels::SwiGlu(isa_, gate_.as<float>() + at, up_.as<float>() + at, config_.ffn_width, hidden_.row(r));
    if (w.down.quantised()) hidden_.Quantize(isa_, r);
  });
  const kernels::MatMulOutput down[] = {
      {&w.down, residual_.as<float>(), config_.width, kernels::Store::kAdd}};
  kernels::MatMul(isa_, threads_, hidden_, down);
}

std::span<const float> Transformer::OutputLogits() {
  const auto rows = static_cast<int64_t>(logit_rows_.size());
  if (rows == 0) return {};
  Grow(logits_, rows * config_.vocab_size);
  normed_.Resize(rows, config_.width);
  ForRows(rows, [&](int64_t r) {
    const float* x = residual(logit_rows_[static_cast<size_t>(r)]);
    kernels::RmsNorm(isa_, x, config_.width, {weights_.output_norm.data(), config_.norm_epsilon},
                     normed_.row(r));
    if (weights_.output.quantised()) normed_.Quantize(isa_, r);
  });
  const kernels::MatMulOutput output[] = {{&weights_.output, logits_.as<float>(), config_.vocab_size}};
  kernels::MatMul(isa_, threads_, normed_, output);
  return {logits_.as<float>(), static_cast<size_t>(rows * config_.vocab_size)};
}

void Transformer::Normalise(const std::vector<float>& weight, bool quantise) {
  ForRows(normed_.rows(), [&](int64_t r) {
    kernels::RmsNorm(isa_, residual(r), config_.width, {weight.data(), config_.norm_epsilon}, normed_.row(r));
    if (quantise) normed_.Quantize(isa_, r);
  });
}

void Transformer::RotateAndStore(int32_t layer) {
  ForRows(static_cast<int64_t>(rows_.size()), [&](int64_t r) {
    const Row& row = rows_[static_cast<size_t>(r)];
    const float* angles = rope_.row(row.position);
    float* q = q_.as<float>() + r * config_.q_width();
    float* k = k_.as<float>() + r * config_.kv_width();
    kernels::Rope(config_.rope_pairs, angles, config_.head_dim, config_.heads, q);
    kernels::Rope(config_.rope_pairs, angles, config_.head_dim, config_.kv_heads, k);
    kv_.Write({layer, row.block, row.slot}, k, v_.as<float>() + r * config_.kv_width());
  });
}

void Transformer::ForRows(int64_t rows, absl::FunctionRef<void(int64_t)> body) {
  const int64_t tasks = rows <= kRowsPerTask ? 1 : (rows + kRowsPerTask - 1) / kRowsPerTask;
  threads_.Run(tasks, [&](int64_t task) {
    const int64_t end = tasks == 1 ? rows : std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) body(r);
  });
}

}  // namespace kvring::replica
