// What the AVX-512 attentions share, whatever the type of keys and values: the size of their tiles, which
// groups of a span of keys are seen, and where a unit's queries lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"

namespace kvring::kernels {

constexpr int kTileQueries = 6;
// Tiles this small are bound by memory: what they read next is asked for early.
constexpr int kDecodeQueries = 3;
constexpr int kMaxHeadDim = 256;
constexpr int kSpanKeys = kSpanGroups * kSlotGroup;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// A group of a span that some query sees.
struct VisibleGroup {
  KvGroup data;
  int32_t first_position;
  int32_t count;  // slots that hold positions of this block
};

// Slots of a group that a query sees, as bits.
inline uint32_t VisibleSlots(const VisibleGroup& group, int32_t first, int32_t last) {
  const int32_t low = std::max(first - group.first_position, 0);
  const int32_t high = std::min(last - group.first_position + 1, group.count);
  if (high <= low) return 0;
  return ((1U << high) - 1U) & ~((1U << low) - 1U);
}

// The groups of span `number` that hold positions first … last, into `groups` (kSpanGroups at most); how
// many. Groups before `first` may belong to freed blocks and are never touched.
inline int CollectGroups(const AttentionContext& context, const AttentionUnit& unit, int32_t number,
                         int32_t first, int32_t last, VisibleGroup* groups) {
  const KvShape& kv = context.pool->shape();
  const int per_block = kv.slots() / kSlotGroup;
  int count = 0;
  for (int32_t g = number * kSpanGroups; g < (number + 1) * kSpanGroups; ++g) {
    const int32_t begin = g / per_block * kv.block_size + g % per_block * kSlotGroup;
    const int32_t in_block = std::min(kSlotGroup, kv.block_size - g % per_block * kSlotGroup);
    if (begin > last) break;
    if (begin + in_block <= first) continue;
    const KvGroup data = context.pool->group(
        context.layer, unit.kv_head, unit.rows->table[static_cast<size_t>(g / per_block)], g % per_block);
    groups[count++] = {data, begin, in_block};
  }
  return count;
}

// The unit's i-th query: tokens in order, the heads of the KV head inside each.
struct UnitQuery {
  int32_t position;
  int64_t at;  // of its first number in q and out
};
inline UnitQuery QueryOf(const AttentionContext& context, const AttentionUnit& unit, int i) {
  const int heads = context.group_heads();
  const int32_t token = unit.token_begin + i / heads;
  const int head = unit.kv_head * heads + i % heads;
  return {unit.rows->first_position + token,
          (static_cast<int64_t>(token) * context.shape.heads + head) * context.head_dim()};
}
inline int QueriesOf(const AttentionContext& context, const AttentionUnit& unit) {
  return (unit.token_end - unit.token_begin) * context.group_heads();
}

}  // namespace kvring::kernels
