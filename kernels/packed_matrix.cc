#include "kernels/packed_matrix.h"

#include <vector>

#include "common/check.h"

namespace kvring::kernels {
namespace {

// Writes one U4 block of lane `lane` (its row within the panel).
void StoreBlock(const U4Block& block, int lane, std::byte* out) {
  for (int k = 0; k < kQuantBlock / 2; ++k) {
    const int low = block.q[k] & 15;
    const int high = block.q[k + 16] & 15;
    out[(k / 4) * 64 + lane * 4 + k % 4] = static_cast<std::byte>(low | (high << 4));
  }
  reinterpret_cast<F16Bits*>(out + 256)[lane] = block.d;
  reinterpret_cast<F16Bits*>(out + 288)[lane] = block.m;
}

void StoreBlock(const U8Block& block, int lane, std::byte* out) {
  for (int k = 0; k < kQuantBlock; ++k) {
    out[(k / 4) * 64 + lane * 4 + k % 4] = static_cast<std::byte>(block.q[k] + 128);
  }
  reinterpret_cast<F16Bits*>(out + 512)[lane] = block.d;
}

template <class Block>
void PackBlocks(PackedMatrix::Shape shape, int64_t block_bytes, PackedMatrix::RowSource<Block> source,
                std::byte* data) {
  const int64_t blocks = shape.cols / kQuantBlock;
  std::vector<Block> row_blocks(static_cast<size_t>(blocks));
  for (int64_t row = 0; row < shape.rows; ++row) {
    source(row, row_blocks);
    std::byte* panel = data + row / kPanelRows * blocks * block_bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      StoreBlock(row_blocks[static_cast<size_t>(b)], static_cast<int>(row % kPanelRows),
                 panel + b * block_bytes);
    }
  }
}

}  // namespace

PackedMatrix::PackedMatrix(WeightFormat format, Shape shape, int64_t panel_bytes)
    : format_(format),
      shape_(shape),
      panel_bytes_(panel_bytes),
      data_(static_cast<size_t>(panels() * panel_bytes)) {}

PackedMatrix PackedMatrix::PackF32(Shape shape, RowSource<float> source) {
  PackedMatrix matrix(WeightFormat::kF32, shape, shape.cols * kPanelRows * 4);
  std::vector<float> values(static_cast<size_t>(shape.cols));
  for (int64_t row = 0; row < shape.rows; ++row) {
    source(row, values);
    float* out = matrix.data_.as<float>() + row / kPanelRows * shape.cols * kPanelRows + row % kPanelRows;
    for (int64_t k = 0; k < shape.cols; ++k) out[k * kPanelRows] = values[static_cast<size_t>(k)];
  }
  return matrix;
}

PackedMatrix PackedMatrix::PackBf16(Shape shape, RowSource<float> source) {
  KVRING_CHECK(shape.cols % 2 == 0);
  PackedMatrix matrix(WeightFormat::kBf16, shape, shape.cols * kPanelRows * 2);
  std::vector<float> values(static_cast<size_t>(shape.cols));
  for (int64_t row = 0; row < shape.rows; ++row) {
    source(row, values);
    Bf16Bits* out =
        matrix.data_.as<Bf16Bits>() + row / kPanelRows * shape.cols * kPanelRows + row % kPanelRows * 2;
    for (int64_t k = 0; k < shape.cols; ++k) {
      out[k / 2 * kPanelRows * 2 + k % 2] = FloatToBf16(values[static_cast<size_t>(k)]);
    }
  }
  return matrix;
}

PackedMatrix PackedMatrix::PackBf16Rows(Shape shape, RowSource<float> source) {
  PackedMatrix matrix(WeightFormat::kBf16Rows, shape, shape.cols * kPanelRows * 2);
  std::vector<float> values(static_cast<size_t>(shape.cols));
  for (int64_t row = 0; row < shape.rows; ++row) {
    source(row, values);
    Bf16Bits* out = matrix.data_.as<Bf16Bits>() + row * shape.cols;
    for (int64_t k = 0; k < shape.cols; ++k) out[k] = FloatToBf16(values[static_cast<size_t>(k)]);
  }
  return matrix;
}

PackedMatrix PackedMatrix::PackU4(Shape shape, RowSource<U4Block> source) {
  KVRING_CHECK(shape.cols % kQuantBlock == 0);
  PackedMatrix matrix(WeightFormat::kU4, shape, shape.cols / kQuantBlock * kU4BlockBytes);
  PackBlocks<U4Block>(shape, kU4BlockBytes, source, matrix.data_.as<std::byte>());
  return matrix;
}

PackedMatrix PackedMatrix::PackU8(Shape shape, RowSource<U8Block> source) {
  KVRING_CHECK(shape.cols % kQuantBlock == 0);
  PackedMatrix matrix(WeightFormat::kU8, shape, shape.cols / kQuantBlock * kU8BlockBytes);
  PackBlocks<U8Block>(shape, kU8BlockBytes, source, matrix.data_.as<std::byte>());
  return matrix;
}

}  // namespace kvring::kernels
