#include "replica/model/transformer.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
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

void AddVector(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void AddBias(const LinearWeights& linear, float* y) {
  AddVector(linear.bias.data(), static_cast<int64_t>(linear.bias.size()), y);
}

}  // namespace

Transformer::Transformer(const Resources& resources)
    : config_(*resources.config),
      weights_(*resources.weights),
      kv_(*resources.kv),
      threads_(*resources.threads),
      isa_(resources.isa),
      rope_(config_.rope_frequencies, config_.rope_magnitude),
      attention_(resources.isa) {}

std::span<const float> Transformer::Forward(const Batch& batch) {
  PlanRows(batch);
  EmbedTokens();
  PlanAttention(batch, false);
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    const bool drop_rows = layer == config_.layers - 1 && wanted_rows_.size() < rows_.size();
    if (drop_rows) {
      StoreKeysAndKeepWantedRows(batch);
      if (rows_.empty()) return {};
    } else {
      AttentionBlock(layer);
    }
    Attend(layer);
    FeedForwardBlock(layer);
  }
  return OutputLogits();
}

void Transformer::PlanRows(const Batch& batch) {
  rows_.clear();
  wanted_rows_.clear();
  const int32_t block_size = kv_.shape().block_size;
  int32_t positions = 0;
  for (const SequenceStep& step : batch.steps) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    positions = std::max(positions, step.first_position + count);
    KVRING_CHECK(step.first_position + count <= static_cast<int64_t>(step.block_table.size()) * block_size);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = step.first_position + i;
      if (i >= step.logits_from) wanted_rows_.push_back(static_cast<int64_t>(rows_.size()));
      rows_.push_back({step.tokens[static_cast<size_t>(i)], position,
                       step.block_table[static_cast<size_t>(position / block_size)], position % block_size});
    }
  }
  if (config_.positions == PositionKind::kRope) rope_.GrowTo(positions);
}

void Transformer::ResizeActivations() {
  const auto rows = static_cast<int64_t>(rows_.size());
  normed_.Resize(rows, config_.width);
  attended_.Resize(rows, config_.q_width());
  hidden_.Resize(rows, config_.ffn_width);
}

void Transformer::EmbedTokens() {
  const auto rows = static_cast<int64_t>(rows_.size());
  Grow(residual_, rows * config_.width);
  Grow(q_, rows * config_.q_width());
  Grow(k_, rows * config_.kv_width());
  Grow(v_, rows * config_.kv_width());
  Grow(gate_, rows * config_.ffn_width);
  Grow(up_, rows * config_.ffn_width);
  ResizeActivations();
  ForRows(rows, [&](int64_t r) {
    const auto& [token, position, block, slot] = rows_[static_cast<size_t>(r)];
    KVRING_CHECK(token >= 0 && token < config_.vocab_size);
    DequantizeRow(weights_.embedding, token, {residual(r), static_cast<size_t>(config_.width)});
    if (config_.positions != PositionKind::kLearned) return;
    KVRING_CHECK(position < config_.context_length);
    AddVector(weights_.positions.data() + static_cast<int64_t>(position) * config_.width, config_.width,
              residual(r));
  });
}

void Transformer::PlanAttention(const Batch& batch, bool wanted_rows_alone) {
  attention_rows_.clear();
  int64_t first = 0;
  for (const SequenceStep& step : batch.steps) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    const int32_t skipped = wanted_rows_alone ? std::min(step.logits_from, count) : 0;
    if (count == skipped) continue;
    attention_rows_.push_back({q_.as<float>() + first * config_.q_width(), attended_.row(first),
                               count - skipped, step.first_position + skipped, step.block_table});
    first += count - skipped;
  }
}

void Transformer::AttentionBlock(int32_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  Normalise(w.attention_norm, w.q.matrix.quantised() || w.k.matrix.quantised() || w.v.matrix.quantised());
  const kernels::MatMulOutput qkv[] = {{&w.q.matrix, q_.as<float>(), config_.q_width()},
                                       {&w.k.matrix, k_.as<float>(), config_.kv_width()},
                                       {&w.v.matrix, v_.as<float>(), config_.kv_width()}};
  kernels::MatMul(isa_, threads_, normed_, qkv);
  ForRows(normed_.rows(), [&](int64_t r) {
    FinishQuery(w, r);
    FinishAndStoreKey(layer, r);
  });
}

void Transformer::StoreKeysAndKeepWantedRows(const Batch& batch) {
  const LayerWeights& w = weights_.layers.back();
  Normalise(w.attention_norm, w.k.matrix.quantised() || w.v.matrix.quantised());
  const kernels::MatMulOutput kv[] = {{&w.k.matrix, k_.as<float>(), config_.kv_width()},
                                      {&w.v.matrix, v_.as<float>(), config_.kv_width()}};
  kernels::MatMul(isa_, threads_, normed_, kv);
  ForRows(normed_.rows(), [&](int64_t r) { FinishAndStoreKey(config_.layers - 1, r); });
  for (size_t i = 0; i < wanted_rows_.size(); ++i) {
    const auto from = wanted_rows_[i];
    rows_[i] = rows_[static_cast<size_t>(from)];
    if (static_cast<int64_t>(i) != from)
      std::copy_n(residual(from), config_.width, residual(static_cast<int64_t>(i)));
    wanted_rows_[i] = static_cast<int64_t>(i);
  }
  rows_.resize(wanted_rows_.size());
  if (rows_.empty()) return;
  ResizeActivations();
  PlanAttention(batch, true);
  Normalise(w.attention_norm, w.q.matrix.quantised());
  const kernels::MatMulOutput q[] = {{&w.q.matrix, q_.as<float>(), config_.q_width()}};
  kernels::MatMul(isa_, threads_, normed_, q);
  ForRows(normed_.rows(), [&](int64_t r) { FinishQuery(w, r); });
}

void Transformer::Attend(int32_t layer) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  attention_.Run(threads_, {&kv_, layer, {config_.heads, scale, config_.window_of(layer)}}, attention_rows_);
  const LinearWeights& o = weights_.layers[static_cast<size_t>(layer)].o;
  if (o.matrix.quantised()) ForRows(attended_.rows(), [&](int64_t r) { attended_.Quantize(isa_, r); });
  AddToResidual(o, attended_);
}

void Transformer::FeedForwardBlock(int32_t layer) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const bool gated = config_.feed_forward == FeedForwardKind::kSwiGlu;
  Normalise(w.ffn_norm, w.gate.matrix.quantised() || w.up.matrix.quantised());
  const kernels::MatMulOutput up_gate[] = {{&w.up.matrix, up_.as<float>(), config_.ffn_width},
                                           {&w.gate.matrix, gate_.as<float>(), config_.ffn_width}};
  kernels::MatMul(isa_, threads_, normed_, std::span(up_gate).first(gated ? 2 : 1));
  ForRows(hidden_.rows(), [&](int64_t r) {
    float* up = up_.as<float>() + r * config_.ffn_width;
    float* gate = gate_.as<float>() + r * config_.ffn_width;
    AddBias(w.up, up);
    if (gated) {
      AddBias(w.gate, gate);
      kernels::SwiGlu(isa_, gate, up, config_.ffn_width, hidden_.row(r));
    } else {
      kernels::Gelu(isa_, up, config_.ffn_width, hidden_.row(r));
    }
    if (w.down.matrix.quantised()) hidden_.Quantize(isa_, r);
  });
  AddToResidual(w.down, hidden_);
}

std::span<const float> Transformer::OutputLogits() {
  const auto rows = static_cast<int64_t>(wanted_rows_.size());
  if (rows == 0) return {};
  Grow(logits_, rows * config_.vocab_size);
  Normalise(weights_.output_norm, weights_.output.quantised());
  const kernels::MatMulOutput output[] = {{&weights_.output, logits_.as<float>(), config_.vocab_size}};
  kernels::MatMul(isa_, threads_, normed_, output);
  return {logits_.as<float>(), static_cast<size_t>(rows * config_.vocab_size)};
}

void Transformer::Normalise(const NormWeights& norm, bool quantise) {
  ForRows(normed_.rows(), [&](int64_t r) {
    if (config_.norm == NormKind::kRms) {
      kernels::RmsNorm(isa_, residual(r), config_.width, {norm.weight.data(), config_.norm_epsilon},
                       normed_.row(r));
    } else {
      const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
      kernels::LayerNorm(isa_, residual(r), config_.width, {norm.weight.data(), bias, config_.norm_epsilon},
                         normed_.row(r));
    }
    if (quantise) normed_.Quantize(isa_, r);
  });
}

void Transformer::FinishHeads(const std::vector<float>& norm, int32_t heads, int32_t position,
                              float* x) const {
  const int32_t dim = config_.head_dim;
  for (int32_t h = 0; h < heads && !norm.empty(); ++h) {
    kernels::RmsNorm(isa_, x + h * dim, dim, {norm.data(), config_.norm_epsilon}, x + h * dim);
  }
  if (config_.positions == PositionKind::kRope) {
    kernels::Rope(isa_, config_.rope_pairs, rope_.row(position), dim, heads, x);
  }
}

void Transformer::FinishQuery(const LayerWeights& w, int64_t r) {
  float* q = q_.as<float>() + r * config_.q_width();
  AddBias(w.q, q);
  FinishHeads(w.q_norm, config_.heads, rows_[static_cast<size_t>(r)].position, q);
}

void Transformer::FinishAndStoreKey(int32_t layer, int64_t r) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const Row& row = rows_[static_cast<size_t>(r)];
  float* k = k_.as<float>() + r * config_.kv_width();
  float* v = v_.as<float>() + r * config_.kv_width();
  AddBias(w.k, k);
  AddBias(w.v, v);
  FinishHeads(w.k_norm, config_.kv_heads, row.position, k);
  kv_.Write(isa_, {layer, row.block, row.slot}, k, v);
}

void Transformer::AddToResidual(const LinearWeights& linear, const kernels::Activations& x) {
  const kernels::MatMulOutput output[] = {
      {&linear.matrix, residual_.as<float>(), config_.width, kernels::Store::kAdd}};
  kernels::MatMul(isa_, threads_, x, output);
  if (linear.bias.empty()) return;
  ForRows(x.rows(), [&](int64_t r) { AddBias(linear, residual(r)); });
}

void Transformer::ForRows(int64_t rows, absl::FunctionRef<void(int64_t)> body) {
  const int64_t tasks = rows <= kRowsPerTask ? 1 : (rows + kRowsPerTask - 1) / kRowsPerTask;
  threads_.Run(tasks, [&](int64_t task) {
    const int64_t end = tasks == 1 ? rows : std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) body(r);
  });
}

}  // namespace kvring::replica
