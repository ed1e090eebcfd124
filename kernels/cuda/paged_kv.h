// Keys and values on the device: one pool of bf16, [layer][block][keys, values][kv_head][slot][head_dim], so
// that a head's slots of a block are one contiguous run, read by warps a row at a time. FinishHeads is what
// lies between the QKV matmul and attention: biases, norms of heads, rotation, and the write into the pool.
// PagedAttention reads through block tables: causal, grouped queries, sliding window; any mix of prefill
// chunks and decodes. One block of 128 threads per row, KV head and span of positions: its four warps take
// the positions in turn, each key and value read once for up to 8 query heads of the group, with an
// online softmax (Dao 2022). Few rows on long contexts would leave the device idle: then the positions are
// split into spans of 512 and a second kernel merges their states (split-K, as in FlashDecoding). Reference:
// attention.h, rope.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace kvring::kernels::cuda {

struct PagedKv {
  uint16_t* data;
  int num_blocks;
  int block_size;
  int kv_heads;
  int head_dim;  // at most 256

  int64_t half_block_elements() const { return static_cast<int64_t>(kv_heads) * block_size * head_dim; }
  int64_t layer_elements() const { return 2 * half_block_elements() * num_blocks; }
};

/// A span's state: peak, sum, values.
constexpr int64_t SpanStateFloats(int head_dim) { return 2 + head_dim; }

/// One token of the step per row, on the device.
struct StepRows {
  const int32_t* position;
  const int32_t* block;  // where its keys and values go …
  const int32_t* slot;
  const int32_t* table;  // … and where its sequence's block table begins in `tables`
  const int32_t* tables;
  int rows;
};

struct HeadsArguments {
  float* q;        // rows x heads x head_dim, finished in place
  const float* k;  // rows x kv_heads x head_dim
  const float* v;
  const float* q_bias;  // null: none
  const float* k_bias;
  const float* v_bias;
  const float* q_norm;  // head_dim; null: none
  const float* k_norm;
  float epsilon;
  const float* rope;  // per position head_dim / 2 cosines, then sines; null: no rotation
  bool adjacent_pairs;
  int heads;
};
void FinishHeads(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                 const HeadsArguments& arguments);

struct AttentionArguments {
  const float* q;
  int heads;
  float scale;
  int window;     // 0: none
  uint16_t* out;  // rows x heads x head_dim, bf16
  int spans;      // 1, or SpansOf the longest sequence of the step
  float* states;  // with spans > 1: rows x heads x spans x SpanStateFloats(head_dim)
};
constexpr int kSpanPositions = 512;
int SpansOf(int longest);
void PagedAttention(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                    const AttentionArguments& arguments);

}  // namespace kvring::kernels::cuda
