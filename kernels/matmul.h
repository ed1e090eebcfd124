// MatMul: y[r][o] (=, +=) sum over k of x[r][k] * W[o][k], for rows r of Activations and packed weights W, on
// the pool. Several weight matrices that read the same rows (Q, K and V; gate and up) share one parallel
// region. Quantised weights meet int8 activation blocks: integer dot products over 32 columns, then f32
//   U4: y += d*s*dot(q, xq) + m*offset      U8: y += d*s*(dot(q, xq) - 128*sum(xq))
// bf16 weights meet bf16 activations, f32 meet f32. Batch invariant: for one Isa, a row's result has the same
// bits whatever other rows stand beside it, since every element is accumulated in column order by itself.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/activations.h"
#include "kernels/isa.h"
#include "kernels/packed_matrix.h"
#include "kernels/thread_pool.h"

namespace kvring::kernels {

enum class Store { kSet, kAdd };

struct MatMulOutput {
  const PackedMatrix* weights;
  float* y;        // x.rows() rows of weights->rows()
  int64_t stride;  // floats between rows of y
  Store store = Store::kSet;
};

/// All outputs read x; x.cols() equals each matrix's cols(). Rows of x are quantised if any of the matrices
/// is.
void MatMul(Isa isa, ThreadPool& pool, const Activations& x, std::span<const MatMulOutput> outputs);

/// A rectangle of one output: what one thread computes at a time.
struct MatMulTile {
  const Activations* x;
  MatMulOutput output;
  int64_t row_begin;
  int64_t row_end;
  int64_t panel_begin;
  int64_t panel_end;
};
void MatMulTilePlain(const MatMulTile& tile);
#if KVRING_X86
void MatMulTileAvx2(const MatMulTile& tile);
void MatMulTileAvx512(const MatMulTile& tile);
#endif

}  // namespace kvring::kernels
