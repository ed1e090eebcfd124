#include "replica/model/cuda_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rows.h"
#include "kernels/thread_pool.h"
#include "replica/model/dequantize.h"

namespace kvring::replica {
namespace {

using kernels::cuda::DeviceArray;
using kernels::cuda::Stream;

constexpr int32_t kMaxHeadDim = 256;
/// More rows than that keep a device busy without splitting their contexts.
constexpr size_t kSplitRows = 256;

/// Room for at least `size` elements; what was there is lost.
template <class T>
absl::Status Grow(Stream& stream, size_t size, DeviceArray<T>& array) {
  if (array.size() >= size) return absl::OkStatus();
  array = DeviceArray<T>();  // first, so that both need not fit
  KVRING_ASSIGN_OR_RETURN(array, DeviceArray<T>::Make(stream, size));
  return absl::OkStatus();
}

absl::Status UploadVector(Stream& stream, const std::vector<float>& from, DeviceArray<float>& to) {
  KVRING_ASSIGN_OR_RETURN(to, DeviceArray<float>::Of(stream, from));
  return absl::OkStatus();
}

absl::Status UploadMatrix(Stream& stream, const kernels::PackedMatrix& from, DeviceArray<uint16_t>& to) {
  const auto size = static_cast<size_t>(from.rows() * from.cols());
  KVRING_ASSIGN_OR_RETURN(to, DeviceArray<uint16_t>::Of(stream, {from.bf16_rows(), size}));
  return absl::OkStatus();
}

absl::Status UploadEmbedding(Stream& stream, const GgufTensor& from, DeviceArray<uint16_t>& to) {
  const int64_t width = from.dim(0);
  const auto matrix = kernels::PackedMatrix::PackBf16Rows(
      {from.dim(1), width}, [&](int64_t row, std::span<float> out) { DequantizeRow(from, row, out); });
  return UploadMatrix(stream, matrix, to);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaExecutor>> CudaExecutor::Load(const std::string& path,
                                                                 const CudaOptions& options) {
  KVRING_ASSIGN_OR_RETURN(const ModelSource source, ModelSource::Open(path));
  return Load(source, options);
}

absl::StatusOr<std::unique_ptr<CudaExecutor>> CudaExecutor::Load(const ModelSource& source,
                                                                 const CudaOptions& options) {
  if (options.block_size < 1 || options.block_size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat("block_size: ", options.block_size, " is not 1 to 4096"));
  }
  if (source.config().head_dim > kMaxHeadDim) {
    return absl::UnimplementedError(absl::StrCat(source.tensors().file, ": heads of ",
                                                 source.config().head_dim, " are longer than ", kMaxHeadDim));
  }
  KVRING_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Open(options.device));
  std::unique_ptr<CudaExecutor> executor(new CudaExecutor(std::move(stream), source.config()));
  KVRING_RETURN_IF_ERROR(executor->LoadWeights(source, options.threads));
  KVRING_RETURN_IF_ERROR(executor->MakePool(options));
  return executor;
}

CudaExecutor::CudaExecutor(std::unique_ptr<Stream> stream, ModelConfig config)
    : stream_(std::move(stream)),
      config_(std::move(config)),
      rope_(config_.rope_frequencies, config_.rope_magnitude) {}

absl::Status CudaExecutor::LoadWeights(const ModelSource& source, int32_t threads) {
  kernels::ThreadPool pool(threads);
  KVRING_ASSIGN_OR_RETURN(const ModelWeights weights,
                          ModelWeights::Load(source.tensors(), config_, Precision::kBf16Rows, pool));
  KVRING_RETURN_IF_ERROR(UploadEmbedding(*stream_, weights.embedding, embedding_));
  KVRING_RETURN_IF_ERROR(UploadVector(*stream_, weights.positions, positions_));
  KVRING_RETURN_IF_ERROR(Upload(weights.output_norm, output_norm_));
  output_.outputs = config_.vocab_size;
  output_.inputs = config_.width;
  KVRING_RETURN_IF_ERROR(UploadMatrix(*stream_, weights.output, output_.weights));
  layers_.resize(weights.layers.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerWeights& from = weights.layers[i];
    Layer& to = layers_[i];
    KVRING_RETURN_IF_ERROR(Upload(from.attention_norm, to.attention_norm));
    KVRING_RETURN_IF_ERROR(Upload(from.ffn_norm, to.ffn_norm));
    KVRING_RETURN_IF_ERROR(UploadVector(*stream_, from.q_norm, to.q_norm));
    KVRING_RETURN_IF_ERROR(UploadVector(*stream_, from.k_norm, to.k_norm));
    const std::pair<const LinearWeights*, Linear*> linears[] = {
        {&from.q, &to.q},       {&from.k, &to.k},   {&from.v, &to.v},      {&from.o, &to.o},
        {&from.gate, &to.gate}, {&from.up, &to.up}, {&from.down, &to.down}};
    for (const auto& [weight, linear] : linears) KVRING_RETURN_IF_ERROR(Upload(*weight, *linear));
  }
  return absl::OkStatus();
}

absl::Status CudaExecutor::Upload(const LinearWeights& from, Linear& to) {
  to.outputs = static_cast<int>(from.matrix.rows());
  to.inputs = static_cast<int>(from.matrix.cols());
  KVRING_RETURN_IF_ERROR(UploadVector(*stream_, from.bias, to.bias));
  return UploadMatrix(*stream_, from.matrix, to.weights);
}

absl::Status CudaExecutor::Upload(const NormWeights& from, Norm& to) {
  KVRING_RETURN_IF_ERROR(UploadVector(*stream_, from.bias, to.bias));
  return UploadVector(*stream_, from.weight, to.weight);
}

absl::Status CudaExecutor::MakePool(const CudaOptions& options) {
  kv_ = {nullptr, 1, options.block_size, config_.kv_heads, config_.head_dim};
  const int64_t block_bytes =
      2 * kv_.layer_elements() * config_.layers;  // of one block in all layers, 2 bytes an element
  const int64_t blocks = options.kv_tokens > 0 ? options.kv_tokens / options.block_size
                                               : stream_->free_bytes() / 10 * 9 / block_bytes;
  if (blocks < 1 || blocks > (int64_t{1} << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_tokens: room for ", blocks, " blocks of ", options.block_size, " tokens"));
  }
  kv_.num_blocks = static_cast<int>(blocks);
  KVRING_ASSIGN_OR_RETURN(kv_data_, Halves::Make(*stream_, static_cast<size_t>(blocks * block_bytes / 2)));
  kv_.data = kv_data_.data();
  limits_ = {config_.vocab_size, config_.context_length,           options.block_size,
             kv_.num_blocks,     block_bytes / options.block_size, config_.window};
  return absl::OkStatus();
}

absl::Status CudaExecutor::Execute(const Batch& batch, StepOutput& output) {
  for (const BlockCopy& copy : batch.copies) CopyBlock(copy);
  output.tokens.clear();
  output.logits = {};
  PlanRows(batch);
  KVRING_RETURN_IF_ERROR(MakeRoom());
  KVRING_RETURN_IF_ERROR(UploadRows());
  const auto rows = static_cast<int>(rows_.token.size());
  const int32_t* numbers = row_numbers_.data();
  const kernels::cuda::StepRows step{numbers + room_rows_,     numbers + 2 * room_rows_,
                                     numbers + 3 * room_rows_, numbers + 4 * room_rows_,
                                     tables_.data(),           rows};
  kernels::cuda::Embed(*stream_, {embedding_.data(), positions_.data(), numbers, step.position, rows,
                                  config_.width, x_.data()});
  for (int32_t layer = 0; layer < config_.layers; ++layer) RunLayer(layer, step);
  return Logits(output);
}

// Whole blocks: what lies behind the copied slots is written before it is read.
void CudaExecutor::CopyBlock(const BlockCopy& copy) {
  const int64_t block = 2 * kv_.half_block_elements();
  for (int32_t layer = 0; layer < config_.layers; ++layer) {
    uint16_t* base = kv_.data + layer * kv_.layer_elements();
    stream_->CopyOnDevice(base + copy.to.value * block, base + copy.from.value * block,
                          static_cast<size_t>(block) * sizeof(uint16_t));
  }
}

void CudaExecutor::PlanRows(const Batch& batch) {
  rows_ = {};
  for (const SequenceStep& step : batch.steps) {
    const auto table = static_cast<int32_t>(rows_.tables.size());
    for (const BlockId block : step.block_table) rows_.tables.push_back(block.value);
    for (size_t i = 0; i < step.tokens.size(); ++i) {
      const int32_t position = step.first_position + static_cast<int32_t>(i);
      if (static_cast<int32_t>(i) >= step.logits_from)
        rows_.wanted.push_back(static_cast<int32_t>(rows_.token.size()));
      rows_.token.push_back(step.tokens[i]);
      rows_.position.push_back(position);
      rows_.block.push_back(step.block_table[static_cast<size_t>(position / kv_.block_size)].value);
      rows_.slot.push_back(position % kv_.block_size);
      rows_.table.push_back(table);
    }
  }
}

absl::Status CudaExecutor::MakeRoom() {
  Stream& s = *stream_;
  const size_t rows = rows_.token.size();
  KVRING_RETURN_IF_ERROR(Grow(s, rows_.tables.size(), tables_));
  KVRING_RETURN_IF_ERROR(Grow(s, rows_.wanted.size(), wanted_));
  KVRING_RETURN_IF_ERROR(Grow(s, rows_.wanted.size() * static_cast<size_t>(config_.width), wanted_rows_));
  KVRING_RETURN_IF_ERROR(
      Grow(s, rows_.wanted.size() * static_cast<size_t>(config_.vocab_size), device_logits_));
  if (rows > static_cast<size_t>(room_rows_)) {
    room_rows_ = static_cast<int32_t>(rows);
    KVRING_RETURN_IF_ERROR(Grow(s, 5 * rows, row_numbers_));
    const std::pair<Floats*, int32_t> floats[] = {{&x_, config_.width},        {&q_, config_.q_width()},
                                                  {&k_, config_.kv_width()},   {&v_, config_.kv_width()},
                                                  {&gate_, config_.ffn_width}, {&up_, config_.ffn_width}};
    for (const auto& [array, width] : floats)
      KVRING_RETURN_IF_ERROR(Grow(s, rows * static_cast<size_t>(width), *array));
    const std::pair<Halves*, int32_t> halves[] = {
        {&normed_, config_.width}, {&attended_, config_.q_width()}, {&hidden_, config_.ffn_width}};
    for (const auto& [array, width] : halves)
      KVRING_RETURN_IF_ERROR(Grow(s, rows * static_cast<size_t>(width), *array));
  }
  const int32_t longest = rows == 0 ? 1 : *std::ranges::max_element(rows_.position) + 1;
  spans_ = rows <= kSplitRows ? kernels::cuda::SpansOf(longest) : 1;
  if (spans_ > 1) {
    const auto states = rows * static_cast<size_t>(config_.heads) * static_cast<size_t>(spans_) *
                        static_cast<size_t>(kernels::cuda::SpanStateFloats(config_.head_dim));
    KVRING_RETURN_IF_ERROR(Grow(s, states, states_));
  }
  return config_.positions == PositionKind::kRope ? GrowRope(longest) : absl::OkStatus();
}

absl::Status CudaExecutor::GrowRope(int32_t positions) {
  if (positions <= rope_positions_) return absl::OkStatus();
  rope_positions_ = std::min(config_.context_length, std::max(2 * positions, 256));
  rope_positions_ = std::max(rope_positions_, positions);
  rope_.GrowTo(rope_positions_);
  rope_rows_ = Floats();
  const size_t size = static_cast<size_t>(rope_positions_) * static_cast<size_t>(rope_.head_dim());
  KVRING_ASSIGN_OR_RETURN(rope_rows_, Floats::Of(*stream_, {rope_.row(0), size}));
  return absl::OkStatus();
}

absl::Status CudaExecutor::UploadRows() {
  const std::vector<int32_t>* columns[] = {&rows_.token, &rows_.position, &rows_.block, &rows_.slot,
                                           &rows_.table};
  int64_t at = 0;
  for (const std::vector<int32_t>* column : columns) {
    stream_->Upload(row_numbers_.data() + at, column->data(), column->size() * sizeof(int32_t));
    at += room_rows_;
  }
  stream_->Upload(tables_.data(), rows_.tables.data(), rows_.tables.size() * sizeof(int32_t));
  stream_->Upload(wanted_.data(), rows_.wanted.data(), rows_.wanted.size() * sizeof(int32_t));
  return absl::OkStatus();
}

void CudaExecutor::RunLayer(int32_t index, const kernels::cuda::StepRows& rows) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  Normalise(layer.attention_norm, x_.data(), rows.rows);
  Multiply(layer.q, normed_.data(), q_.data(), rows.rows, false);
  Multiply(layer.k, normed_.data(), k_.data(), rows.rows, false);
  Multiply(layer.v, normed_.data(), v_.data(), rows.rows, false);
  kernels::cuda::FinishHeads(
      *stream_, kv_, index, rows,
      {q_.data(), k_.data(), v_.data(), layer.q.bias.data(), layer.k.bias.data(), layer.v.bias.data(),
       layer.q_norm.data(), layer.k_norm.data(), config_.norm_epsilon, rope_rows_.data(),
       config_.rope_pairs == kernels::RopePairs::kAdjacent, config_.heads});
  const float scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
  kernels::cuda::PagedAttention(
      *stream_, kv_, index, rows,
      {q_.data(), config_.heads, scale, config_.window_of(index), attended_.data(), spans_, states_.data()});
  Multiply(layer.o, attended_.data(), x_.data(), rows.rows, true);

  Normalise(layer.ffn_norm, x_.data(), rows.rows);
  const bool gated = config_.feed_forward == FeedForwardKind::kSwiGlu;
  if (gated) Multiply(layer.gate, normed_.data(), gate_.data(), rows.rows, false);
  Multiply(layer.up, normed_.data(), up_.data(), rows.rows, false);
  kernels::cuda::Activate(*stream_, {gated ? gate_.data() : nullptr, layer.gate.bias.data(), up_.data(),
                                     layer.up.bias.data(), rows.rows, config_.ffn_width, hidden_.data()});
  Multiply(layer.down, hidden_.data(), x_.data(), rows.rows, true);
}

void CudaExecutor::Normalise(const Norm& norm, const float* x, int rows) {
  const kernels::cuda::NormArguments arguments{
      x, norm.weight.data(), norm.bias.data(), config_.norm_epsilon, rows, config_.width, normed_.data()};
  if (config_.norm == NormKind::kRms) {
    kernels::cuda::RmsNorm(*stream_, arguments);
  } else {
    kernels::cuda::LayerNorm(*stream_, arguments);
  }
}

// With `add` the bias is added here; without, by the kernel that reads y.
void CudaExecutor::Multiply(const Linear& linear, const uint16_t* x, float* y, int rows, bool add) {
  stream_->Multiply({x, linear.weights.data(), y, rows, linear.outputs, linear.inputs, add});
  if (add && linear.bias.size() > 0)
    kernels::cuda::AddBias(*stream_, y, linear.bias.data(), rows, linear.outputs);
}

absl::Status CudaExecutor::Logits(StepOutput& output) {
  const auto rows = static_cast<int>(rows_.wanted.size());
  logits_.resize(static_cast<size_t>(rows) * static_cast<size_t>(config_.vocab_size));
  if (rows > 0) {
    kernels::cuda::GatherRows(*stream_, x_.data(), wanted_.data(), rows, config_.width, wanted_rows_.data());
    Normalise(output_norm_, wanted_rows_.data(), rows);
    Multiply(output_, normed_.data(), device_logits_.data(), rows, false);
  }
  KVRING_RETURN_IF_ERROR(
      stream_->Download(logits_.data(), device_logits_.data(), logits_.size() * sizeof(float)));
  output.logits = logits_;
  return absl::OkStatus();
}

}  // namespace kvring::replica
