// Activations: the rows that enter a matmul, as f32 and, where a quantised matrix asks for it, as int8 blocks
// of 32: x ≈ scale * q with scale = max|x| / 127. offset = scale * sum(q) carries the constant term of U4
// weights, and sum(q) the +128 of U8 weights. Row stride of everything is cols (rounded nowhere): cols % 32
// == 0 when quantised. Not thread-safe, except that distinct rows may be filled at once.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/isa.h"
#include "kernels/packed_matrix.h"

namespace kvring::kernels {

/// One row of int8 blocks: q[n], scale[n/32], offset[n/32], sum[n/32].
struct QuantRow {
  int8_t* q;
  float* scale;
  float* offset;
  int32_t* sum;
};
void QuantizeRow(Isa isa, const float* x, int64_t n, QuantRow out);
void QuantizeRowPlain(const float* x, int64_t n, QuantRow out);

class Activations {
 public:
  /// Room for rows x cols; what was there is lost.
  void Resize(int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float* row(int64_t r) { return values_.as<float>() + r * cols_; }
  const float* row(int64_t r) const { return values_.as<float>() + r * cols_; }
  /// Makes the int8 form of a row whose floats are final.
  void Quantize(Isa isa, int64_t r) { QuantizeRow(isa, row(r), cols_, quant_row(r)); }
  QuantRow quant_row(int64_t r);

  const int8_t* q() const { return q_.as<int8_t>(); }
  const float* scale() const { return scale_.as<float>(); }
  const float* offset() const { return offset_.as<float>(); }
  const int32_t* sum() const { return sum_.as<int32_t>(); }

 private:
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  AlignedBuffer values_;
  AlignedBuffer q_;
  AlignedBuffer scale_;
  AlignedBuffer offset_;
  AlignedBuffer sum_;
};

}  // namespace kvring::kernels
