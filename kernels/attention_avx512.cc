// AVX-512 attention: a unit's queries in tiles of 6. Every span of keys is taken once for all tiles of the
// unit (its 64 KiB of bf16 keys and values at head_dim 64 come from L2 the second time), and each tile merges
// the span into its state.
#include <algorithm>
#include <cstring>

#include "kernels/attention_tile_avx512.h"

#if KVRING_X86

namespace kvring::kernels {
namespace {

constexpr int kTilesTogether = 8;  // 16 tokens of 3 heads

struct State {
  float peak;
  float sum;
  const float* values;
};

// Adds a span's state to a running one.
KVRING_TARGET_AVX512 void MergeState(const State& span, int head_dim, float& peak, float& sum,
                                     float* values) {
  if (span.peak == kNothing) return;
  if (peak == kNothing) {
    std::memcpy(values, span.values, static_cast<size_t>(head_dim) * 4);
    sum = span.sum;
    peak = span.peak;
    return;
  }
  const float joint = std::max(peak, span.peak);
  const __m512 keep = Exp2Avx512(_mm512_set1_ps(peak - joint));
  const __m512 take = Exp2Avx512(_mm512_set1_ps(span.peak - joint));
  for (int d = 0; d < head_dim; d += 16) {
    const __m512 added = _mm512_mul_ps(_mm512_loadu_ps(span.values + d), take);
    _mm512_storeu_ps(values + d, _mm512_fmadd_ps(_mm512_loadu_ps(values + d), keep, added));
  }
  sum = sum * _mm512_cvtss_f32(keep) + span.sum * _mm512_cvtss_f32(take);
  peak = joint;
}

void PrefetchKeys(const KvGroup& group, const KvShape& kv) {
  const int64_t bytes = kv.element_bytes() * kSlotGroup * kv.head_dim;
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(group.keys + line);
}

// Which groups of the span the unit's queries see.
void CollectSpan(const AttentionContext& context, const AttentionUnit& unit, int32_t number, Span& span) {
  const int32_t first = context.first_visible(unit.rows->first_position + unit.token_begin);
  const int32_t last = unit.rows->first_position + unit.token_end - 1;
  span.count = CollectGroups(context, unit, number, first, last, span.groups);
  if (QueriesOf(context, unit) > kDecodeQueries) return;
  for (int g = 0; g < std::min(span.count, 4); ++g) PrefetchKeys(span.groups[g].data, context.pool->shape());
}

// The part of the span that the tile's queries see.
void Narrow(const Span& span, const Tile& tile, SpanWork& work) {
  const int32_t first = tile.first_visible[0];
  const int32_t last_first = tile.first_visible[tile.queries - 1];
  const int32_t first_last = tile.position[0];
  work.last_position = tile.position[tile.queries - 1];
  int begin = 0;
  while (begin < span.count && span.groups[begin].first_position + span.groups[begin].count <= first) ++begin;
  int end = span.count;
  while (end > begin && span.groups[end - 1].first_position > work.last_position) --end;
  work.groups = span.groups + begin;
  work.group_count = end - begin;
  work.whole_begin = 0;
  while (work.whole_begin < work.group_count && work.groups[work.whole_begin].first_position < last_first)
    ++work.whole_begin;
  work.whole_end = work.whole_begin;
  while (work.whole_end < work.group_count && work.groups[work.whole_end].count == kSlotGroup &&
         work.groups[work.whole_end].first_position + kSlotGroup - 1 <= first_last)
    ++work.whole_end;
}

// Scales a query and, for bf16 keys, packs it into pairs in place.
KVRING_TARGET_AVX512 void LoadQuery(const float* q, float scale, KvType type, int head_dim, float* out) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int d = 0; d < head_dim; d += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(q + d), factor);
    if (type == KvType::kBf16) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + d / 2), (__m256i)_mm512_cvtneps_pbh(scaled));
    } else {
      _mm512_store_ps(out + d, scaled);
    }
  }
}

void LoadQueries(const AttentionContext& context, const AttentionUnit& unit, int first, int queries,
                 Tile& tile) {
  tile.queries = queries;
  tile.head_dim = context.head_dim();
  for (int i = 0; i < queries; ++i) {
    const auto [position, at] = QueryOf(context, unit, first + i);
    LoadQuery(unit.rows->q + at, context.shape.scale * kLog2E, context.pool->shape().type, tile.head_dim,
              tile.q[i]);
    tile.out[i] = unit.rows->out + at;
    tile.position[i] = position;
    tile.first_visible[i] = context.first_visible(position);
    tile.peak[i] = kNothing;
  }
}

KVRING_TARGET_AVX512 void FinishQuery(const float* values, float sum, int head_dim, float* out) {
  const __m512 inverse = _mm512_set1_ps(1.0F / sum);
  for (int d = 0; d < head_dim; d += 16) {
    _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(values + d), inverse));
  }
}

void SaveStates(const SpanWork& work, int queries, int head_dim, float* state) {
  for (int r = 0; r < queries; ++r, state += StateFloats(head_dim)) {
    state[0] = work.peak[r];
    state[1] = work.sum[r];
    std::memcpy(state + 16, work.values[r], static_cast<size_t>(head_dim) * 4);
  }
}

void AttendTile(const AttentionContext& context, const Span& span, const Tile& tile, SpanWork& work) {
  Narrow(span, tile, work);
  switch (context.pool->shape().type) {
    case KvType::kF32:
      return AttendSpan<KvType::kF32>(tile, work);
    case KvType::kF16:
      return AttendSpan<KvType::kF16>(tile, work);
    default:
      return AttendSpan<KvType::kBf16>(tile, work);
  }
}

// Queries [first, first + queries) of the unit, at most kTilesTogether tiles.
void AttendTiles(const AttentionContext& context, const AttentionUnit& unit, int first, int queries,
                 float* states) {
  Tile tiles[kTilesTogether];
  SpanWork work;
  const int count = (queries + kTileQueries - 1) / kTileQueries;
  for (int t = 0; t < count; ++t) {
    LoadQueries(context, unit, first + t * kTileQueries, std::min(kTileQueries, queries - t * kTileQueries),
                tiles[t]);
  }
  Span span;
  for (int32_t number = unit.span_begin; number < unit.span_end; ++number) {
    CollectSpan(context, unit, number, span);
    for (int t = 0; t < count; ++t) {
      Tile& tile = tiles[t];
      AttendTile(context, span, tile, work);
      if (states != nullptr) {
        SaveStates(work, tile.queries, tile.head_dim, states + t * kTileQueries * StateFloats(tile.head_dim));
        continue;
      }
      for (int r = 0; r < tile.queries; ++r) {
        MergeState({work.peak[r], work.sum[r], work.values[r]}, tile.head_dim, tile.peak[r], tile.sum[r],
                   tile.values[r]);
      }
    }
  }
  if (states != nullptr) return;
  for (int t = 0; t < count; ++t) {
    const Tile& tile = tiles[t];
    for (int r = 0; r < tile.queries; ++r)
      FinishQuery(tile.values[r], tile.sum[r], tile.head_dim, tile.out[r]);
  }
}

}  // namespace

void AttendUnitAvx512(const AttentionContext& context, const AttentionUnit& unit, float* partials) {
  constexpr int kQueriesTogether = kTilesTogether * kTileQueries;
  const int queries = QueriesOf(context, unit);
  for (int first = 0; first < queries; first += kQueriesTogether) {
    float* states = nullptr;
    if (unit.partial != kNoPartial) {
      const int64_t index = static_cast<int64_t>(unit.span_begin) * queries + first;
      states = partials + unit.partial + index * StateFloats(context.head_dim());
    }
    AttendTiles(context, unit, first, std::min(kQueriesTogether, queries - first), states);
  }
}

void MergeSpansAvx512(const AttentionContext& context, const AttentionUnit& merge, const float* partials) {
  const int head_dim = context.head_dim();
  const int queries = QueriesOf(context, merge);
  alignas(64) float values[kMaxHeadDim];
  for (int i = 0; i < queries; ++i) {
    float peak = kNothing;
    float sum = 0;
    for (int32_t span = 0; span < merge.span_end; ++span) {
      const float* state =
          partials + merge.partial + (static_cast<int64_t>(span) * queries + i) * StateFloats(head_dim);
      MergeState({state[0], state[1], state + 16}, head_dim, peak, sum, values);
    }
    FinishQuery(values, sum, head_dim, merge.rows->out + QueryOf(context, merge, i).at);
  }
}

}  // namespace kvring::kernels
#endif
