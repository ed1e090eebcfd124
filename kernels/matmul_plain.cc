// The plain reference of every weight format: one element at a time, straight from the formulas of matmul.h.
#include "kernels/half.h"
#include "kernels/matmul.h"

namespace kvring::kernels {
namespace {

float DotF32(const std::byte* panel, int lane, const float* x, int64_t n) {
  const auto* w = reinterpret_cast<const float*>(panel);
  float sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += w[k * kPanelRows + lane] * x[k];
  return sum;
}

float DotBf16(const std::byte* panel, int lane, const float* x, int64_t n) {
  const auto* w = reinterpret_cast<const Bf16Bits*>(panel);
  float sum = 0;
  for (int64_t k = 0; k < n; ++k) {
    const float weight = Bf16ToFloat(w[k / 2 * kPanelRows * 2 + lane * 2 + k % 2]);
    sum += weight * Bf16ToFloat(FloatToBf16(x[k]));
  }
  return sum;
}

struct QuantView {
  const int8_t* q;
  const float* scale;
  const float* offset;
  const int32_t* sum;
};

float DotU4(const std::byte* panel, int lane, const QuantView& x, int64_t blocks) {
  float total = 0;
  for (int64_t b = 0; b < blocks; ++b, panel += kU4BlockBytes) {
    int32_t dot = 0;
    for (int k = 0; k < kQuantBlock / 2; ++k) {
      const int pair = static_cast<int>(panel[k / 4 * 64 + lane * 4 + k % 4]);
      dot += (pair & 15) * x.q[b * kQuantBlock + k] + (pair >> 4) * x.q[b * kQuantBlock + 16 + k];
    }
    const float d = F16ToFloat(reinterpret_cast<const F16Bits*>(panel + 256)[lane]);
    const float m = F16ToFloat(reinterpret_cast<const F16Bits*>(panel + 288)[lane]);
    total += d * x.scale[b] * static_cast<float>(dot) + m * x.offset[b];
  }
  return total;
}

float DotU8(const std::byte* panel, int lane, const QuantView& x, int64_t blocks) {
  float total = 0;
  for (int64_t b = 0; b < blocks; ++b, panel += kU8BlockBytes) {
    int32_t dot = -128 * x.sum[b];
    for (int k = 0; k < kQuantBlock; ++k) {
      dot += static_cast<int>(panel[k / 4 * 64 + lane * 4 + k % 4]) * x.q[b * kQuantBlock + k];
    }
    const float d = F16ToFloat(reinterpret_cast<const F16Bits*>(panel + 512)[lane]);
    total += d * x.scale[b] * static_cast<float>(dot);
  }
  return total;
}

float Dot(const MatMulTile& tile, int64_t row, int64_t out) {
  const PackedMatrix& w = *tile.output.weights;
  const Activations& x = *tile.x;
  const std::byte* panel = w.panel(out / kPanelRows);
  const int lane = static_cast<int>(out % kPanelRows);
  const int64_t blocks = w.cols() / kQuantBlock;
  const QuantView quant{x.q() + row * w.cols(), x.scale() + row * blocks, x.offset() + row * blocks,
                        x.sum() + row * blocks};
  switch (w.format()) {
    case WeightFormat::kF32:
      return DotF32(panel, lane, x.row(row), w.cols());
    case WeightFormat::kBf16:
      return DotBf16(panel, lane, x.row(row), w.cols());
    case WeightFormat::kU4:
      return DotU4(panel, lane, quant, blocks);
    case WeightFormat::kU8:
      return DotU8(panel, lane, quant, blocks);
    case WeightFormat::kBf16Rows:
      break;  // refused by MatMul
  }
  return 0;
}

}  // namespace

void MatMulTilePlain(const MatMulTile& tile) {
  const int64_t out_end = std::min(tile.panel_end * kPanelRows, tile.output.weights->rows());
  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    float* y = tile.output.y + row * tile.output.stride;
    for (int64_t out = tile.panel_begin * kPanelRows; out < out_end; ++out) {
      const float dot = Dot(tile, row, out);
      y[out] = tile.output.store == Store::kAdd ? y[out] + dot : dot;
    }
  }
}

}  // namespace kvring::kernels
