// PackedMatrix: a weight matrix laid out for the matmul kernels, packed once at load. rows are output
// features, cols input features; y = W x. Panels of 16 rows stand one after the other, so that one vector
// lane is one output feature:
//   kF32   panel = cols x [16 f32]
//   kBf16  panel = cols/2 x [16 x 2 bf16]                          a pair is two neighbouring columns
//   kU4    panel = cols/32 x ([4 x 16 x 4 bytes] [16 d f16] [16 m f16])   w = d*q + m, q 0..15; byte i of
//   group g of a row
//          holds column 4g+i in its low and column 16+4g+i in its high nibble (320 bytes)
//   kU8    panel = cols/32 x ([8 x 16 x 4 bytes] [16 d f16])       w = d*(q - 128), q 0..255; group g holds
//   4g..4g+3
//   kBf16Rows  rows x cols bf16 as they are: for devices, which have matmuls of their own; none here takes it
// The last panel is filled up with zero rows. Q4_0/Q4_1 become kU4 and Q8_0 kU8 without loss; everything else
// can become kBf16 or kF32. Immutable after packing; safe from many threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "kernels/aligned_buffer.h"
#include "kernels/half.h"

namespace kvring::kernels {

constexpr int kPanelRows = 16;
constexpr int kQuantBlock = 32;
constexpr int kU4BlockBytes = 320;
constexpr int kU8BlockBytes = 544;

enum class WeightFormat { kF32, kBf16, kU4, kU8, kBf16Rows };

/// 32 columns of one row.
struct U4Block {
  F16Bits d = 0;
  F16Bits m = 0;
  std::array<uint8_t, kQuantBlock> q{};  // 0..15, in column order
};
struct U8Block {
  F16Bits d = 0;
  std::array<int8_t, kQuantBlock> q{};  // in column order
};

class PackedMatrix {
 public:
  struct Shape {
    int64_t rows;
    int64_t cols;
  };
  template <class T>
  using RowSource = absl::FunctionRef<void(int64_t row, std::span<T> out)>;

  PackedMatrix() = default;
  /// The source fills one row at a time; quantised formats need cols % 32 == 0, bf16 cols % 2 == 0.
  static PackedMatrix PackF32(Shape shape, RowSource<float> source);
  static PackedMatrix PackBf16(Shape shape, RowSource<float> source);
  static PackedMatrix PackBf16Rows(Shape shape, RowSource<float> source);
  static PackedMatrix PackU4(Shape shape, RowSource<U4Block> source);
  static PackedMatrix PackU8(Shape shape, RowSource<U8Block> source);

  WeightFormat format() const { return format_; }
  int64_t rows() const { return shape_.rows; }
  int64_t cols() const { return shape_.cols; }
  int64_t panels() const { return (shape_.rows + kPanelRows - 1) / kPanelRows; }
  int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(int64_t i) const { return data_.as<std::byte>() + i * panel_bytes_; }
  size_t size_bytes() const { return data_.size_bytes(); }
  /// Of kBf16Rows: rows() * cols() numbers.
  const Bf16Bits* bf16_rows() const { return data_.as<Bf16Bits>(); }
  /// Whether activations are taken as int8 blocks.
  bool quantised() const { return format_ == WeightFormat::kU4 || format_ == WeightFormat::kU8; }

 private:
  PackedMatrix(WeightFormat format, Shape shape, int64_t panel_bytes);

  WeightFormat format_ = WeightFormat::kF32;
  Shape shape_{0, 0};
  int64_t panel_bytes_ = 0;
  AlignedBuffer data_;
};

}  // namespace kvring::kernels
