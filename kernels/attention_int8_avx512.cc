// AVX-512 attention on int8 keys and values. As attention_avx512.cc works: tiles of queries of one KV head,
// spans of 16 groups, scores by broadcasting q over the transposed keys, a softmax in powers of two per span,
// and the merge of its states. q, and the probabilities times the scales of their values, are
// rounded to 16-bit integers of their own largest magnitude (15 bits: 2^-16 of it at most is lost), so that
// vpdpwssd multiplies exact integers: sums of 256 products stay below 2^31.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention_span.h"

#if KVRING_X86
#include "kernels/exp_avx512.h"

namespace kvring::kernels {
namespace {

constexpr float kMaxInt16 = 32767.0F;

struct Tile {
  int queries = 0;
  int head_dim = 0;
  alignas(64) int16_t q[kTileQueries][kMaxHeadDim];
  float q_scale[kTileQueries];
  int32_t first_visible[kTileQueries];
  int32_t position[kTileQueries];
  VisibleGroup groups[kSpanGroups];
  int group_count = 0;
  alignas(64) float scores[kTileQueries][kSpanKeys];
  alignas(64) int16_t weights[kTileQueries][kSpanKeys];
  float weight_scale[kTileQueries];
};

// 16 lanes of pairs, widened.
KVRING_TARGET_AVX512 inline __m512i LoadPairs(const std::byte* at) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

inline int32_t Pair(const int16_t* at) {
  int32_t pair;
  std::memcpy(&pair, at, 4);
  return pair;
}

// x as integers times the scale that is returned; n % 16 == 0.
KVRING_TARGET_AVX512 float RoundToInt16(const float* x, int n, int16_t* out) {
  __m512 largest = _mm512_setzero_ps();
  for (int i = 0; i < n; i += 16) largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
  const float scale = _mm512_reduce_max_ps(largest) / kMaxInt16;
  const __m512 inverse = _mm512_set1_ps(scale >= std::numeric_limits<float>::min() ? 1.0F / scale : 0.0F);
  for (int i = 0; i < n; i += 16) {
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtsepi32_epi16(rounded));
  }
  return scale;
}

void LoadQueries(const AttentionContext& context, const AttentionUnit& unit, int first, int queries,
                 Tile& tile) {
  tile.queries = queries;
  tile.head_dim = context.head_dim();
  for (int i = 0; i < queries; ++i) {
    const auto [position, at] = QueryOf(context, unit, first + i);
    tile.q_scale[i] = RoundToInt16(unit.rows->q + at, tile.head_dim, tile.q[i]);
    tile.position[i] = position;
    tile.first_visible[i] = context.first_visible(position);
  }
}

void CollectSpan(const AttentionContext& context, const AttentionUnit& unit, int32_t span, Tile& tile) {
  const int32_t first = *std::min_element(tile.first_visible, tile.first_visible + tile.queries);
  const int32_t last = *std::max_element(tile.position, tile.position + tile.queries);
  tile.group_count = CollectGroups(context, unit, span, first, last, tile.groups);
  for (VisibleGroup& group : std::span(tile.groups, static_cast<size_t>(tile.group_count)))
    group.count = std::min(group.count, last - group.first_position + 1);
}

// Scores of Q queries against B neighbouring groups, times `scale`.
template <int Q, int B>
KVRING_TARGET_AVX512 inline void ScoreGroups(Tile& tile, int first, float scale) {
  __m512i score[Q][B] = {};
  const std::byte* keys[B];
  const std::byte* values[B];
  const std::byte* next_keys[B];
  for (int b = 0; b < B; ++b) {
    keys[b] = tile.groups[first + b].data.keys;
    values[b] = tile.groups[first + b].data.values;
    next_keys[b] = tile.groups[std::min(first + B + b, tile.group_count - 1)].data.keys;
  }
  for (int d = 0; d < tile.head_dim; d += 2) {
    __m512i k[B];
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      k[b] = LoadPairs(keys[b] + d * kSlotGroup);
      if constexpr (Q <= kDecodeQueries) {
        __builtin_prefetch(next_keys[b] + d * kSlotGroup);
        __builtin_prefetch(values[b] + d * kSlotGroup);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < Q; ++r) {
      const __m512i q = _mm512_set1_epi32(Pair(&tile.q[r][d]));
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) score[r][b] = _mm512_dpwssd_epi32(score[r][b], q, k[b]);
    }
  }
  for (int b = 0; b < B; ++b) {
    const __m512 scales = _mm512_loadu_ps(ScalesOf(keys[b], tile.head_dim));
    for (int r = 0; r < Q; ++r) {
      const __m512 factor = _mm512_mul_ps(scales, _mm512_set1_ps(scale * tile.q_scale[r]));
      _mm512_store_ps(&tile.scores[r][(first + b) * kSlotGroup],
                      _mm512_mul_ps(_mm512_cvtepi32_ps(score[r][b]), factor));
    }
  }
}

// Turns a query's scores into unnormalised probabilities times the values' scales, zero where it does not
// see; the state's peak and sum are those of the probabilities.
KVRING_TARGET_AVX512 void Softmax(Tile& tile, int r, float* state) {
  float* scores = tile.scores[r];
  __mmask16 seen[kSpanGroups];
  __m512 peaks = _mm512_set1_ps(kNothing);
  for (int g = 0; g < tile.group_count; ++g) {
    seen[g] = static_cast<__mmask16>(VisibleSlots(tile.groups[g], tile.first_visible[r], tile.position[r]));
    peaks = _mm512_mask_max_ps(peaks, seen[g], peaks, _mm512_load_ps(scores + g * kSlotGroup));
  }
  const float peak = _mm512_reduce_max_ps(peaks);
  const __m512 all_peak = _mm512_set1_ps(peak == kNothing ? 0.0F : peak);
  __m512 sums = _mm512_setzero_ps();
  for (int g = 0; g < tile.group_count; ++g) {
    const __m512 below = _mm512_sub_ps(_mm512_load_ps(scores + g * kSlotGroup), all_peak);
    const __m512 p = _mm512_maskz_mov_ps(seen[g], Exp2Avx512(below));
    sums = _mm512_add_ps(sums, p);
    const float* scales = ScalesOf(tile.groups[g].data.values, tile.head_dim);
    _mm512_store_ps(scores + g * kSlotGroup, _mm512_maskz_mul_ps(seen[g], p, _mm512_loadu_ps(scales)));
  }
  state[0] = peak;
  state[1] = _mm512_reduce_add_ps(sums);
  tile.weight_scale[r] = RoundToInt16(scores, tile.group_count * kSlotGroup, tile.weights[r]);
}

// Weighted values of Q queries, D x 16 dimensions from `dim` on, into their states.
template <int Q, int D>
KVRING_TARGET_AVX512 inline void WeighValues(const Tile& tile, int dim, float* states) {
  __m512i acc[Q][D] = {};
  for (int g = 0; g < tile.group_count; ++g) {
    const VisibleGroup& group = tile.groups[g];
    for (int slot = 0; slot < group.count; slot += 2) {
      const std::byte* values = group.data.values + slot * tile.head_dim + dim * 2;
      __m512i v[D];
#pragma GCC unroll 4
      for (int i = 0; i < D; ++i) v[i] = LoadPairs(values + i * 32);
#pragma GCC unroll 6
      for (int r = 0; r < Q; ++r) {
        const __m512i p = _mm512_set1_epi32(Pair(&tile.weights[r][g * kSlotGroup + slot]));
#pragma GCC unroll 4
        for (int i = 0; i < D; ++i) acc[r][i] = _mm512_dpwssd_epi32(acc[r][i], p, v[i]);
      }
    }
  }
  for (int r = 0; r < Q; ++r) {
    float* out = states + r * StateFloats(tile.head_dim) + 16 + dim;
    const __m512 weight_scale = _mm512_set1_ps(tile.weight_scale[r]);
    for (int i = 0; i < D; ++i)
      _mm512_storeu_ps(out + i * 16, _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][i]), weight_scale));
  }
}

template <int Q>
KVRING_TARGET_AVX512 void AttendSpan(Tile& tile, float scale, float* states) {
  int group = 0;
  for (; group + 2 <= tile.group_count; group += 2) ScoreGroups<Q, 2>(tile, group, scale);
  if (group < tile.group_count) ScoreGroups<Q, 1>(tile, group, scale);
  for (int r = 0; r < Q; ++r) Softmax(tile, r, states + r * StateFloats(tile.head_dim));
  int dim = 0;
  for (; dim + 64 <= tile.head_dim; dim += 64) WeighValues<Q, 4>(tile, dim, states);
  for (; dim < tile.head_dim; dim += 16) WeighValues<Q, 1>(tile, dim, states);
}

void AttendTileSpan(Tile& tile, float scale, float* states) {
  switch (tile.queries) {
    case 1:
      return AttendSpan<1>(tile, scale, states);
    case 2:
      return AttendSpan<2>(tile, scale, states);
    case 3:
      return AttendSpan<3>(tile, scale, states);
    case 4:
      return AttendSpan<4>(tile, scale, states);
    case 5:
      return AttendSpan<5>(tile, scale, states);
    default:
      return AttendSpan<kTileQueries>(tile, scale, states);
  }
}

}  // namespace

// A unit that has all spans to itself keeps their states here and merges them as split units are merged.
void AttendInt8UnitAvx512(const AttentionContext& context, const AttentionUnit& unit, float* partials) {
  const int queries = QueriesOf(context, unit);
  const int64_t state_floats = StateFloats(context.head_dim());
  std::vector<float> own;
  if (unit.partial == kNoPartial) own.resize(static_cast<size_t>(unit.span_end * queries * state_floats));
  float* states = unit.partial == kNoPartial ? own.data() : partials + unit.partial;
  Tile tile;
  const float scale = context.shape.scale * kLog2E;
  for (int first = 0; first < queries; first += kTileQueries) {
    LoadQueries(context, unit, first, std::min(kTileQueries, queries - first), tile);
    for (int32_t span = unit.span_begin; span < unit.span_end; ++span) {
      CollectSpan(context, unit, span, tile);
      AttendTileSpan(tile, scale, states + (static_cast<int64_t>(span) * queries + first) * state_floats);
    }
  }
  if (unit.partial != kNoPartial) return;
  AttentionUnit merge = unit;
  merge.partial = 0;
  MergeSpansAvx512(context, merge, own.data());
}

}  // namespace kvring::kernels
#endif
