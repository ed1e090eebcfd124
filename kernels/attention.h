// Attention over block tables: out = softmax(scale * q K^T, masked) V per query head, causal (a token at
// position p sees positions 0..p), with an optional sliding window (then only p - window < j), grouped
// queries (heads / kv_heads query heads share one KV head). Any mix of prefill chunks and decodes in one
// call; their keys and values are in the pool already. Keys are worked off in spans of 16 groups of 16 slots,
// a softmax inside each and a merge across them in order (the log-sum-exp merge of FlashAttention, Dao 2022,
// sec. 3.1): long decodes spread their spans over the threads, and a row has the same bits whether it is
// computed alone, in a chunk or in a batch (for one Isa and block size).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "kernels/aligned_buffer.h"
#include "kernels/isa.h"
#include "kernels/kv_pool.h"
#include "kernels/thread_pool.h"

namespace kvring::kernels {

struct AttentionShape {
  int heads;
  float scale;
  int window = 0;  // 0: none
};

/// Consecutive rows of one sequence. q and out are rows x heads x head_dim.
struct AttentionRows {
  const float* q;
  float* out;
  int32_t rows;
  int32_t first_position;
  std::span<const BlockId> table;
};

/// One layer of the pool with the model's shape.
struct AttentionContext {
  const KvPool* pool;
  int layer;
  AttentionShape shape;

  int head_dim() const { return pool->shape().head_dim; }
  int group_heads() const { return shape.heads / pool->shape().kv_heads; }
  int32_t first_visible(int32_t position) const {
    return shape.window > 0 && position >= shape.window ? position - shape.window + 1 : 0;
  }
};

constexpr int64_t kNoPartial = -1;

/// Work of one task: query tokens of one step on one KV head, over spans [span_begin, span_end).
struct AttentionUnit {
  const AttentionRows* rows;
  int kv_head;
  int32_t token_begin;
  int32_t token_end;
  int32_t span_begin;
  int32_t span_end;
  int64_t partial;  // kNoPartial: covers all spans and writes `out`; else where the (step, head)'s states
                    // lie, in floats
};

class Attention {
 public:
  explicit Attention(Isa isa) : isa_(isa) {}
  void Run(ThreadPool& threads, const AttentionContext& context, std::span<const AttentionRows> steps);

 private:
  void RunUnits(ThreadPool& threads, const AttentionContext& context, std::span<const AttentionRows> steps);
  void PlanStep(const AttentionContext& context, const AttentionRows& rows);
  void PlanSplit(const AttentionContext& context, const AttentionRows& rows, int32_t spans);

  Isa isa_;
  std::vector<AttentionUnit> units_;
  std::vector<AttentionUnit> merges_;  // one per split (step, KV head): spans and partial of the whole
  AlignedBuffer partials_;
  int64_t partial_floats_ = 0;
};

constexpr int kSpanGroups = 16;
/// A state is the softmax's running maximum, its sum, and the weighted values.
inline int64_t StateFloats(int head_dim) { return head_dim + 16; }

/// The plain reference: all rows of a step for one query head, two passes in double.
void AttendHeadPlain(const AttentionContext& context, const AttentionRows& rows, int head);
#if KVRING_X86
/// head_dim % 8 == 0.
void AttendHeadAvx2(const AttentionContext& context, const AttentionRows& rows, int head);
/// head_dim % 16 == 0 and at most 256.
void AttendUnitAvx512(const AttentionContext& context, const AttentionUnit& unit, float* partials);
/// The same for int8 keys and values (attention_int8_avx512.cc).
void AttendInt8UnitAvx512(const AttentionContext& context, const AttentionUnit& unit, float* partials);
void MergeSpansAvx512(const AttentionContext& context, const AttentionUnit& merge, const float* partials);
#endif

}  // namespace kvring::kernels
