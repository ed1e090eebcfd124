// Dequantize: rows of a GGUF tensor as f32, by the block formulas of the format (F32, F16, BF16, Q4_0, Q4_1,
// Q8_0, Q4_K, Q6_K), and the quantised blocks themselves where a packed format keeps them without loss. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/packed_matrix.h"
#include "replica/model/gguf.h"

namespace kvring::replica {

/// Whether DequantizeRow knows the type.
bool CanDequantize(TensorType type);
/// Bytes of one row of the tensor (dims[0] elements).
int64_t RowBytes(const GgufTensor& tensor);
/// Row `row` of a tensor seen as a matrix of dims[0] columns; out.size() == dims[0].
void DequantizeRow(const GgufTensor& tensor, int64_t row, std::span<float> out);

/// Q4_0 and Q4_1 rows; Q4_0's d*(q - 8) becomes d*q + (-8d), exactly.
void ReadU4Row(const GgufTensor& tensor, int64_t row, std::span<kernels::U4Block> out);
/// Q8_0 rows.
void ReadU8Row(const GgufTensor& tensor, int64_t row, std::span<kernels::U8Block> out);

}  // namespace kvring::replica
