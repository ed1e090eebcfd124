// The inner loops of AVX-512 attention, for attention_avx512.cc alone: up to 6 queries (tokens x heads of one
// KV head) against one span of keys. Scores by broadcasting q over the transposed keys (no horizontal sums),
// one softmax in powers of two, then values weighted by broadcast probabilities. f16 is widened to f32 as it
// is read. With bf16 keys and values, q
// and the probabilities are rounded to bf16 too and vdpbf16ps takes two dimensions (two slots) at once; the
// probabilities are summed as rounded, so that the weights still add up to one. A query's bits do not depend
// on the others of its tile: what it does not see adds exact zeros.
#pragma once

#include <algorithm>

#include "kernels/attention_span.h"

#if KVRING_X86
#include "kernels/exp_avx512.h"

namespace kvring::kernels {

// The visible groups of one span, for all queries of a unit.
struct Span {
  VisibleGroup groups[kSpanGroups];
  int count = 0;
};

struct Tile {
  int queries = 0;
  int head_dim = 0;
  alignas(64) float q[kTileQueries][kMaxHeadDim];  // times scale and log2 e; as bf16 pairs where the keys are
  float* out[kTileQueries];
  int32_t first_visible[kTileQueries];
  int32_t position[kTileQueries];
  // States across spans.
  float peak[kTileQueries];
  float sum[kTileQueries];
  alignas(64) float values[kTileQueries][kMaxHeadDim];
};

// A tile at work on one span.
struct SpanWork {
  const VisibleGroup* groups;
  int group_count;
  int32_t last_position;
  // Groups [whole_begin, whole_end) are seen in full by every query.
  int whole_begin;
  int whole_end;
  alignas(64) float scores[kTileQueries][kSpanKeys];
  float peak[kTileQueries];
  float sum[kTileQueries];
  alignas(64) float values[kTileQueries][kMaxHeadDim];
};

// A vector step of any type: 16 lanes of f32, or of bf16 pairs.
template <KvType kType>
KVRING_TARGET_AVX512 inline __m512 MultiplyAdd(__m512 sum, __m512 a, __m512 b) {
  if constexpr (kType == KvType::kBf16) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  } else {
    return _mm512_fmadd_ps(a, b, sum);
  }
}

template <KvType kType>
constexpr int kPerStep = kType == KvType::kBf16 ? 2 : 1;

// What a step reads of the stored keys or values.
template <KvType kType>
constexpr int kStepBytes = kType == KvType::kF16 ? 32 : 64;
template <KvType kType>
KVRING_TARGET_AVX512 inline __m512 LoadStored(const std::byte* at) {
  if constexpr (kType == KvType::kF16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  } else {
    return _mm512_loadu_ps(at);
  }
}

// Scores of Q queries against B neighbouring groups.
template <KvType kType, int Q, int B>
KVRING_TARGET_AVX512 inline void ScoreGroups(const Tile& tile, int first_group, SpanWork& work) {
  __m512 score[Q][B] = {};
  const std::byte* keys[B];
  const std::byte* values[B];
  const std::byte* next_keys[B];
  for (int b = 0; b < B; ++b) {
    keys[b] = work.groups[first_group + b].data.keys;
    values[b] = work.groups[first_group + b].data.values;
    next_keys[b] = work.groups[std::min(first_group + B + b, work.group_count - 1)].data.keys;
  }
  const int steps = tile.head_dim / kPerStep<kType>;
  for (int d = 0; d < steps; ++d) {
    __m512 k[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      k[b] = LoadStored<kType>(keys[b] + d * kStepBytes<kType>);
      if constexpr (Q <= kDecodeQueries) {
        __builtin_prefetch(next_keys[b] + d * kStepBytes<kType>);
        __builtin_prefetch(values[b] + d * kStepBytes<kType>);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Q; ++r) {
      const __m512 q = _mm512_set1_ps(tile.q[r][d]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) score[r][b] = MultiplyAdd<kType>(score[r][b], q, k[b]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Q; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) _mm512_store_ps(&work.scores[r][(first_group + b) * kSlotGroup], score[r][b]);
  }
}

template <KvType kType, int Q>
KVRING_TARGET_AVX512 inline void ScoreSpan(const Tile& tile, SpanWork& work) {
  constexpr int kTogether = Q <= 3 ? 4 : 2;
  int group = 0;
  for (; group + kTogether <= work.group_count; group += kTogether)
    ScoreGroups<kType, Q, kTogether>(tile, group, work);
  for (; group < work.group_count; ++group) ScoreGroups<kType, Q, 1>(tile, group, work);
}

// Writes a group's probabilities, in bf16 packed into the group's first half, and gives them back as used.
template <KvType kType>
KVRING_TARGET_AVX512 inline __m512 StoreWeights(__m512 p, float* scores) {
  if constexpr (kType == KvType::kBf16) {
    const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(p);
    _mm256_store_si256(reinterpret_cast<__m256i*>(scores), narrow);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  } else {
    _mm512_store_ps(scores, p);
    return p;
  }
}

// Turns a query's scores into unnormalised probabilities, zero where it does not see.
template <KvType kType>
KVRING_TARGET_AVX512 inline void Softmax(const Tile& tile, int r, SpanWork& work) {
  float* scores = work.scores[r];
  __mmask16 seen[kSpanGroups];
  __m512 peaks = _mm512_set1_ps(kNothing);
  for (int g = 0; g < work.group_count; ++g) {
    const bool whole = g >= work.whole_begin && g < work.whole_end;
    seen[g] = static_cast<__mmask16>(
        whole ? 0xffffU : VisibleSlots(work.groups[g], tile.first_visible[r], tile.position[r]));
    peaks = _mm512_mask_max_ps(peaks, seen[g], peaks, _mm512_load_ps(scores + g * kSlotGroup));
  }
  const float peak = _mm512_reduce_max_ps(peaks);
  work.peak[r] = peak;
  const __m512 all_peak = _mm512_set1_ps(peak == kNothing ? 0.0F : peak);
  __m512 sums = _mm512_setzero_ps();
  for (int g = 0; g < work.group_count; ++g) {
    const __m512 below = _mm512_sub_ps(_mm512_load_ps(scores + g * kSlotGroup), all_peak);
    const __m512 p = _mm512_maskz_mov_ps(seen[g], Exp2Avx512(below));
    sums = _mm512_add_ps(sums, StoreWeights<kType>(p, scores + g * kSlotGroup));
  }
  work.sum[r] = _mm512_reduce_add_ps(sums);
}

// One step of WeighValues: a slot (f32, f16) or a pair of slots (bf16; `lanes` drops a second slot that
// nobody has written).
template <KvType kType, int Q, int D>
KVRING_TARGET_AVX512 inline void WeighStep(const SpanWork& work, const std::byte* values, int weight,
                                           __m512i lanes, __m512 (&acc)[Q][D]) {
  __m512 v[D];
#pragma GCC unroll 4
  for (int i = 0; i < D; ++i) {
    v[i] = LoadStored<kType>(values + i * kStepBytes<kType>);
    if constexpr (kType == KvType::kBf16) {
      v[i] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v[i]), lanes));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Q; ++r) {
    const __m512 p = _mm512_set1_ps(work.scores[r][weight]);
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) acc[r][i] = MultiplyAdd<kType>(acc[r][i], p, v[i]);
  }
}

// The span's values of Q queries, D x 16 dimensions from `dim` on.
template <KvType kType, int Q, int D>
KVRING_TARGET_AVX512 inline void WeighValues(int head_dim, int dim, SpanWork& work) {
  __m512 acc[Q][D] = {};
  const __m512i all = _mm512_set1_epi32(-1);
  const int64_t row_bytes = head_dim / 16 * kStepBytes<kType>;
  for (int g = 0; g < work.group_count; ++g) {
    const VisibleGroup& group = work.groups[g];
    const std::byte* values = group.data.values + dim / 16 * kStepBytes<kType>;
    const int count = std::min(group.count, work.last_position - group.first_position + 1);
    const int whole = count / kPerStep<kType>;
    for (int step = 0; step < whole; ++step) {
      WeighStep<kType, Q, D>(work, values + step * row_bytes, g * kSlotGroup + step, all, acc);
    }
    if (count % kPerStep<kType> != 0) {
      WeighStep<kType, Q, D>(work, values + whole * row_bytes, g * kSlotGroup + whole,
                             _mm512_set1_epi32(0xffff), acc);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Q; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) _mm512_store_ps(&work.values[r][dim + i * 16], acc[r][i]);
  }
}

template <KvType kType, int Q>
KVRING_TARGET_AVX512 void AttendQueries(const Tile& tile, SpanWork& work) {
  ScoreSpan<kType, Q>(tile, work);
  for (int r = 0; r < Q; ++r) Softmax<kType>(tile, r, work);
  int dim = 0;
  for (; dim + 64 <= tile.head_dim; dim += 64) WeighValues<kType, Q, 4>(tile.head_dim, dim, work);
  for (; dim < tile.head_dim; dim += 16) WeighValues<kType, Q, 1>(tile.head_dim, dim, work);
}

template <KvType kType>
void AttendSpan(const Tile& tile, SpanWork& work) {
  switch (tile.queries) {
    case 1:
      return AttendQueries<kType, 1>(tile, work);
    case 2:
      return AttendQueries<kType, 2>(tile, work);
    case 3:
      return AttendQueries<kType, 3>(tile, work);
    case 4:
      return AttendQueries<kType, 4>(tile, work);
    case 5:
      return AttendQueries<kType, 5>(tile, work);
    default:
      return AttendQueries<kType, kTileQueries>(tile, work);
  }
}

}  // namespace kvring::kernels
#endif
