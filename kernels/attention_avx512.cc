// AVX-512 attention. A tile is up to 6 queries (tokens x heads of one KV head). Per span: scores by
// broadcasting q over the transposed keys (no horizontal sums), one softmax in powers of two, then values
// weighted by broadcast probabilities. With bf16 keys and values, q and the probabilities are rounded to bf16
// too and vdpbf16ps takes two dimensions (two slots) at once; the probabilities are summed as rounded, so
// that the weights still add up to one.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention.h"

#if KVRING_X86
#include "kernels/exp_avx512.h"

namespace kvring::kernels {
namespace {

constexpr int kTileQueries = 6;
// Tiles this small are bound by memory: what they read next is asked for early.
constexpr int kDecodeQueries = 3;
constexpr int kMaxHeadDim = 256;
constexpr int kSpanKeys = kSpanGroups * kSlotGroup;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// A group of the span that some query sees.
struct VisibleGroup {
  KvGroup data;
  int32_t first_position;
  int32_t count;  // slots in use by positions that some query sees
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
  // Within a span.
  VisibleGroup groups[kSpanGroups];
  int group_count = 0;
  alignas(64) float scores[kTileQueries][kSpanKeys];
  float span_peak[kTileQueries];
  float span_sum[kTileQueries];
  alignas(64) float span_values[kTileQueries][kMaxHeadDim];
};

// A vector step of either type: 16 lanes of f32, or of bf16 pairs.
template <KvType kType>
KVRING_TARGET_AVX512 inline __m512 MultiplyAdd(__m512 sum, __m512 a, __m512 b) {
  if constexpr (kType == KvType::kF32) {
    return _mm512_fmadd_ps(a, b, sum);
  } else {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
}

template <KvType kType>
constexpr int kPerStep = kType == KvType::kF32 ? 1 : 2;

// Scores of Q queries against B neighbouring groups.
template <KvType kType, int Q, int B>
KVRING_TARGET_AVX512 inline void ScoreGroups(Tile& tile, int first_group) {
  __m512 score[Q][B] = {};
  const std::byte* keys[B];
  const std::byte* values[B];
  const std::byte* next_keys[B];
  for (int b = 0; b < B; ++b) {
    keys[b] = tile.groups[first_group + b].data.keys;
    values[b] = tile.groups[first_group + b].data.values;
    next_keys[b] = tile.groups[std::min(first_group + B + b, tile.group_count - 1)].data.keys;
  }
  const int steps = tile.head_dim / kPerStep<kType>;
  for (int d = 0; d < steps; ++d) {
    __m512 k[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      k[b] = _mm512_loadu_ps(keys[b] + d * 64);
      if constexpr (Q <= kDecodeQueries) {
        __builtin_prefetch(next_keys[b] + d * 64);
        __builtin_prefetch(values[b] + d * 64);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Q; ++r) {
      const __m512 q = _mm512_set1_ps(tile.q[r][d]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) score[r][b] = MultiplyAdd<kType>(score[r][b], q, k[b]);
    }
  }
  for (int r = 0; r < Q; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(&tile.scores[r][(first_group + b) * kSlotGroup], score[r][b]);
  }
}

template <KvType kType, int Q>
KVRING_TARGET_AVX512 void ScoreSpan(Tile& tile) {
  constexpr int kTogether = Q <= 3 ? 4 : 2;
  int group = 0;
  for (; group + kTogether <= tile.group_count; group += kTogether)
    ScoreGroups<kType, Q, kTogether>(tile, group);
  for (; group < tile.group_count; ++group) ScoreGroups<kType, Q, 1>(tile, group);
}

// Slots of a group that a query sees.
inline uint32_t VisibleSlots(const VisibleGroup& group, int32_t first, int32_t last) {
  const int32_t low = std::max(first - group.first_position, 0);
  const int32_t high = std::min(last - group.first_position + 1, group.count);
  if (high <= low) return 0;
  return ((1U << high) - 1U) & ~((1U << low) - 1U);
}

// Writes a group's probabilities, in bf16 packed into the group's first half, and gives them back as used.
template <KvType kType>
KVRING_TARGET_AVX512 inline __m512 StoreWeights(__m512 p, float* scores) {
  if constexpr (kType == KvType::kF32) {
    _mm512_store_ps(scores, p);
    return p;
  } else {
    const __m256i narrow = (__m256i)_mm512_cvtneps_pbh(p);
    _mm256_store_si256(reinterpret_cast<__m256i*>(scores), narrow);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  }
}

// Turns a query's scores into unnormalised probabilities, zero where it does not see.
template <KvType kType>
KVRING_TARGET_AVX512 void Softmax(Tile& tile, int r) {
  float* scores = tile.scores[r];
  __mmask16 seen[kSpanGroups];
  __m512 peaks = _mm512_set1_ps(kNothing);
  for (int g = 0; g < tile.group_count; ++g) {
    seen[g] = static_cast<__mmask16>(VisibleSlots(tile.groups[g], tile.first_visible[r], tile.position[r]));
    peaks = _mm512_mask_max_ps(peaks, seen[g], peaks, _mm512_load_ps(scores + g * kSlotGroup));
  }
  const float peak = _mm512_reduce_max_ps(peaks);
  tile.span_peak[r] = peak;
  const __m512 all_peak = _mm512_set1_ps(peak == kNothing ? 0.0F : peak);
  __m512 sums = _mm512_setzero_ps();
  for (int g = 0; g < tile.group_count; ++g) {
    const __m512 below = _mm512_sub_ps(_mm512_load_ps(scores + g * kSlotGroup), all_peak);
    const __m512 p = _mm512_maskz_mov_ps(seen[g], Exp2Avx512(below));
    sums = _mm512_add_ps(sums, StoreWeights<kType>(p, scores + g * kSlotGroup));
  }
  tile.span_sum[r] = _mm512_reduce_add_ps(sums);
}

// One step of WeighValues: a slot (f32) or a pair of slots (bf16; `lanes` drops a second slot that nobody has
// written).
template <KvType kType, int Q, int D>
KVRING_TARGET_AVX512 inline void WeighStep(const Tile& tile, const float* values, int weight, __m512i lanes,
                                           __m512 (&acc)[Q][D]) {
  __m512 v[D];
#pragma GCC unroll 4
  for (int i = 0; i < D; ++i) {
    v[i] = _mm512_loadu_ps(values + i * 16);
    if constexpr (kType == KvType::kBf16) {
      v[i] = _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v[i]), lanes));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Q; ++r) {
    const __m512 p = _mm512_set1_ps(tile.scores[r][weight]);
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) acc[r][i] = MultiplyAdd<kType>(acc[r][i], p, v[i]);
  }
}

// span_values of Q queries, D x 16 dimensions from `dim` on.
template <KvType kType, int Q, int D>
KVRING_TARGET_AVX512 inline void WeighValues(Tile& tile, int dim) {
  __m512 acc[Q][D] = {};
  const __m512i all = _mm512_set1_epi32(-1);
  for (int g = 0; g < tile.group_count; ++g) {
    const VisibleGroup& group = tile.groups[g];
    const float* values = reinterpret_cast<const float*>(group.data.values) + dim;
    const int whole = group.count / kPerStep<kType>;
    for (int step = 0; step < whole; ++step) {
      WeighStep<kType, Q, D>(tile, values + step * tile.head_dim, g * kSlotGroup + step, all, acc);
    }
    if (group.count % kPerStep<kType> != 0) {
      WeighStep<kType, Q, D>(tile, values + whole * tile.head_dim, g * kSlotGroup + whole,
                             _mm512_set1_epi32(0xffff), acc);
    }
  }
  for (int r = 0; r < Q; ++r) {
    for (int i = 0; i < D; ++i) _mm512_store_ps(&tile.span_values[r][dim + i * 16], acc[r][i]);
  }
}

template <KvType kType, int Q>
KVRING_TARGET_AVX512 void AttendQueries(Tile& tile) {
  ScoreSpan<kType, Q>(tile);
  for (int r = 0; r < Q; ++r) Softmax<kType>(tile, r);
  int dim = 0;
  for (; dim + 64 <= tile.head_dim; dim += 64) WeighValues<kType, Q, 4>(tile, dim);
  for (; dim < tile.head_dim; dim += 16) WeighValues<kType, Q, 1>(tile, dim);
}

template <KvType kType>
void AttendSpan(Tile& tile) {
  switch (tile.queries) {
    case 1:
      return AttendQueries<kType, 1>(tile);
    case 2:
      return AttendQueries<kType, 2>(tile);
    case 3:
      return AttendQueries<kType, 3>(tile);
    case 4:
      return AttendQueries<kType, 4>(tile);
    case 5:
      return AttendQueries<kType, 5>(tile);
    default:
      return AttendQueries<kType, kTileQueries>(tile);
  }
}

struct State {
  float peak;
  float sum;
  const float* values;
};

// Adds a span's state to a running one.
KVRING_TARGET_AVX512 void MergeState(const State& span, int head_dim, float& peak, float& sum,
                                     float* values) {
  if (span.peak == kNothing) return;
  const float joint = std::max(peak, span.peak);
  const float keep = peak == kNothing ? 0.0F : std::exp2(peak - joint);
  const float take = std::exp2(span.peak - joint);
  for (int d = 0; d < head_dim; d += 16) {
    const __m512 added = _mm512_mul_ps(_mm512_loadu_ps(span.values + d), _mm512_set1_ps(take));
    _mm512_storeu_ps(values + d, _mm512_fmadd_ps(_mm512_loadu_ps(values + d), _mm512_set1_ps(keep), added));
  }
  sum = sum * keep + span.sum * take;
  peak = joint;
}

void PrefetchKeys(const KvGroup& group, const KvShape& kv) {
  const int64_t bytes = kv.element_bytes() * kSlotGroup * kv.head_dim;
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(group.keys + line);
}

// Which groups of the span its queries see; groups before the window may belong to freed blocks and are never
// touched.
void CollectGroups(const AttentionContext& context, const AttentionUnit& unit, int32_t span, Tile& tile) {
  const KvShape& kv = context.pool->shape();
  const int per_block = kv.slots() / kSlotGroup;
  const int32_t first = *std::min_element(tile.first_visible, tile.first_visible + tile.queries);
  const int32_t last = *std::max_element(tile.position, tile.position + tile.queries);
  tile.group_count = 0;
  for (int32_t g = span * kSpanGroups; g < (span + 1) * kSpanGroups; ++g) {
    const int32_t begin = g / per_block * kv.block_size + g % per_block * kSlotGroup;
    const int32_t in_block = std::min(kSlotGroup, kv.block_size - g % per_block * kSlotGroup);
    if (begin > last) break;
    if (begin + in_block <= first) continue;
    const KvGroup data = context.pool->group(
        context.layer, unit.kv_head, unit.rows->table[static_cast<size_t>(g / per_block)], g % per_block);
    tile.groups[tile.group_count++] = {data, begin, std::min(in_block, last - begin + 1)};
    if (tile.queries <= kDecodeQueries && tile.group_count <= 4) PrefetchKeys(data, kv);
  }
}

// Scales a query and, for bf16 keys, packs it into pairs in place.
KVRING_TARGET_AVX512 void LoadQuery(const float* q, float scale, KvType type, int head_dim, float* out) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int d = 0; d < head_dim; d += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(q + d), factor);
    if (type == KvType::kF32) {
      _mm512_store_ps(out + d, scaled);
    } else {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + d / 2), (__m256i)_mm512_cvtneps_pbh(scaled));
    }
  }
}

void LoadQueries(const AttentionContext& context, const AttentionUnit& unit, int first, int queries,
                 Tile& tile) {
  tile.queries = queries;
  tile.head_dim = context.head_dim();
  for (int i = 0; i < queries; ++i) {
    const int32_t token = unit.token_begin + (first + i) / context.group_heads();
    const int head = unit.kv_head * context.group_heads() + (first + i) % context.group_heads();
    const int64_t at = (static_cast<int64_t>(token) * context.shape.heads + head) * tile.head_dim;
    LoadQuery(unit.rows->q + at, context.shape.scale * kLog2E, context.pool->shape().type, tile.head_dim,
              tile.q[i]);
    tile.out[i] = unit.rows->out + at;
    tile.position[i] = unit.rows->first_position + token;
    tile.first_visible[i] = context.first_visible(tile.position[i]);
    tile.peak[i] = kNothing;
    tile.sum[i] = 0;
    std::fill_n(tile.values[i], tile.head_dim, 0.0F);
  }
}

void FinishQuery(const float* values, float sum, int head_dim, float* out) {
  const float inverse = 1.0F / sum;
  for (int d = 0; d < head_dim; ++d) out[d] = values[d] * inverse;
}

void SaveStates(const Tile& tile, float* state) {
  for (int r = 0; r < tile.queries; ++r, state += StateFloats(tile.head_dim)) {
    state[0] = tile.span_peak[r];
    state[1] = tile.span_sum[r];
    std::memcpy(state + 16, tile.span_values[r], static_cast<size_t>(tile.head_dim) * 4);
  }
}

void AttendTile(const AttentionContext& context, const AttentionUnit& unit, Tile& tile, float* states) {
  for (int32_t span = unit.span_begin; span < unit.span_end; ++span) {
    CollectGroups(context, unit, span, tile);
    if (context.pool->shape().type == KvType::kF32) {
      AttendSpan<KvType::kF32>(tile);
    } else {
      AttendSpan<KvType::kBf16>(tile);
    }
    if (states != nullptr) {
      SaveStates(tile, states);
      continue;
    }
    for (int r = 0; r < tile.queries; ++r) {
      MergeState({tile.span_peak[r], tile.span_sum[r], tile.span_values[r]}, tile.head_dim, tile.peak[r],
                 tile.sum[r], tile.values[r]);
    }
  }
  if (states != nullptr) return;
  for (int r = 0; r < tile.queries; ++r) FinishQuery(tile.values[r], tile.sum[r], tile.head_dim, tile.out[r]);
}

}  // namespace

void AttendUnitAvx512(const AttentionContext& context, const AttentionUnit& unit, float* partials) {
  Tile tile;
  const int queries = (unit.token_end - unit.token_begin) * context.group_heads();
  for (int first = 0; first < queries; first += kTileQueries) {
    LoadQueries(context, unit, first, std::min(kTileQueries, queries - first), tile);
    float* states = nullptr;
    if (unit.partial != kNoPartial) {
      const int64_t index = static_cast<int64_t>(unit.span_begin) * queries + first;
      states = partials + unit.partial + index * StateFloats(tile.head_dim);
    }
    AttendTile(context, unit, tile, states);
  }
}

void MergeSpansAvx512(const AttentionContext& context, const AttentionUnit& merge, const float* partials) {
  const int head_dim = context.head_dim();
  const int heads = context.group_heads();
  const int queries = (merge.token_end - merge.token_begin) * heads;
  alignas(64) float values[kMaxHeadDim];
  for (int i = 0; i < queries; ++i) {
    float peak = kNothing;
    float sum = 0;
    std::fill_n(values, head_dim, 0.0F);
    for (int32_t span = 0; span < merge.span_end; ++span) {
      const float* state =
          partials + merge.partial + (static_cast<int64_t>(span) * queries + i) * StateFloats(head_dim);
      MergeState({state[0], state[1], state + 16}, head_dim, peak, sum, values);
    }
    const int64_t row = merge.token_begin + i / heads;
    const int64_t at = (row * context.shape.heads + merge.kv_head * heads + i % heads) * head_dim;
    FinishQuery(values, sum, head_dim, merge.rows->out + at);
  }
}

}  // namespace kvring::kernels
#endif
