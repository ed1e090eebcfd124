// AVX2 attention: one query head at a time, all its keys in one pass (no spans), with the roundings of the
// plain reference (none besides the stored keys and values).
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {
namespace {

// A group that the query sees, with the slots [begin, end) in sight.
struct Seen {
  KvGroup data;
  int begin;
  int end;
};

// 8 lanes of f32 pairs: element 2i of each bf16 pair, or 2i + 1.
KVRING_TARGET_AVX2 inline __m256 Even(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
KVRING_TARGET_AVX2 inline __m256 Odd(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

KVRING_TARGET_AVX2 inline __m256i LoadPairs(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// 8 f16, widened.
KVRING_TARGET_AVX2 inline __m256 LoadHalves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// 8 lanes of int8 pairs, widened: element 2i of each pair, or 2i + 1.
KVRING_TARGET_AVX2 inline __m256i LoadInt8Pairs(const std::byte* at) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
KVRING_TARGET_AVX2 inline __m256 EvenInt(__m256i pairs) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16));
}
KVRING_TARGET_AVX2 inline __m256 OddInt(__m256i pairs) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 16));
}

KVRING_TARGET_AVX2 void ScoreGroup(KvType type, const std::byte* keys, const float* q, int head_dim,
                                   float* scores) {
  __m256 sum[2] = {};
  for (int h = 0; h < 2; ++h) {
    if (type == KvType::kF32) {
      const auto* k = reinterpret_cast<const float*>(keys) + h * 8;
      for (int d = 0; d < head_dim; ++d) {
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d]), _mm256_loadu_ps(k + d * kSlotGroup), sum[h]);
      }
    } else if (type == KvType::kF16) {
      for (int d = 0; d < head_dim; ++d) {
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d]), LoadHalves(keys + d * 32 + h * 16), sum[h]);
      }
    } else if (type == KvType::kInt8) {
      for (int d = 0; d < head_dim; d += 2) {
        const __m256i pairs = LoadInt8Pairs(keys + d * kSlotGroup + h * 16);
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d]), EvenInt(pairs), sum[h]);
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d + 1]), OddInt(pairs), sum[h]);
      }
      sum[h] = _mm256_mul_ps(sum[h], _mm256_loadu_ps(ScalesOf(keys, head_dim) + h * 8));
    } else {
      for (int d = 0; d < head_dim; d += 2) {
        const __m256i pairs = LoadPairs(keys + d * 32 + h * 32);
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d]), Even(pairs), sum[h]);
        sum[h] = _mm256_fmadd_ps(_mm256_set1_ps(q[d + 1]), Odd(pairs), sum[h]);
      }
    }
    _mm256_storeu_ps(scores + h * 8, sum[h]);
  }
}

// out += weight of the slot times its values. head_dim % 8 == 0.
KVRING_TARGET_AVX2 void WeighSlot(KvType type, const std::byte* values, int slot, float weight, int head_dim,
                                  float* out) {
  const __m256 w = _mm256_set1_ps(type == KvType::kInt8 ? weight * ScalesOf(values, head_dim)[slot] : weight);
  for (int d = 0; d < head_dim; d += 8) {
    __m256 v;
    if (type == KvType::kF32) {
      v = _mm256_loadu_ps(reinterpret_cast<const float*>(values) + slot * head_dim + d);
    } else if (type == KvType::kF16) {
      v = LoadHalves(values + (slot * head_dim + d) * 2);
    } else if (type == KvType::kInt8) {
      const __m256i pairs = LoadInt8Pairs(values + (slot / 2 * head_dim + d) * 2);
      v = slot % 2 == 0 ? EvenInt(pairs) : OddInt(pairs);
    } else {
      const __m256i pairs = LoadPairs(values + (slot / 2 * head_dim + d) * 4);
      v = slot % 2 == 0 ? Even(pairs) : Odd(pairs);
    }
    _mm256_storeu_ps(out + d, _mm256_fmadd_ps(w, v, _mm256_loadu_ps(out + d)));
  }
}

void CollectSeen(const AttentionContext& context, const AttentionRows& rows, int32_t position, int kv_head,
                 std::vector<Seen>& seen) {
  const KvShape& kv = context.pool->shape();
  const int32_t first = context.first_visible(position);
  seen.clear();
  for (int32_t block = first / kv.block_size; block <= position / kv.block_size; ++block) {
    for (int g = 0; g * kSlotGroup < kv.block_size; ++g) {
      const int32_t begin = block * kv.block_size + g * kSlotGroup;
      const int32_t end = std::min({begin + kSlotGroup, (block + 1) * kv.block_size, position + 1});
      if (end <= first || end <= begin) continue;
      const KvGroup data =
          context.pool->group(context.layer, kv_head, rows.table[static_cast<size_t>(block)], g);
      seen.push_back({data, std::max(first - begin, 0), end - begin});
    }
  }
}

void AttendRow(const AttentionContext& context, const std::vector<Seen>& seen, const float* q, float* out) {
  const int head_dim = context.head_dim();
  const KvType type = context.pool->shape().type;
  std::vector<float> scores(seen.size() * kSlotGroup);
  float peak = -INFINITY;
  for (size_t i = 0; i < seen.size(); ++i) {
    float* group = scores.data() + i * kSlotGroup;
    ScoreGroup(type, seen[i].data.keys, q, head_dim, group);
    for (int slot = seen[i].begin; slot < seen[i].end; ++slot) peak = std::max(peak, group[slot]);
  }
  float sum = 0;
  std::fill_n(out, head_dim, 0.0F);
  for (size_t i = 0; i < seen.size(); ++i) {
    for (int slot = seen[i].begin; slot < seen[i].end; ++slot) {
      const float weight =
          std::exp((scores[i * kSlotGroup + static_cast<size_t>(slot)] - peak) * context.shape.scale);
      sum += weight;
      WeighSlot(type, seen[i].data.values, slot, weight, head_dim, out);
    }
  }
  for (int d = 0; d < head_dim; ++d) out[d] /= sum;
}

}  // namespace

void AttendHeadAvx2(const AttentionContext& context, const AttentionRows& rows, int head) {
  std::vector<Seen> seen;
  for (int32_t row = 0; row < rows.rows; ++row) {
    CollectSeen(context, rows, rows.first_position + row, head / context.group_heads(), seen);
    const int64_t at = (static_cast<int64_t>(row) * context.shape.heads + head) * context.head_dim();
    AttendRow(context, seen, rows.q + at, rows.out + at);
  }
}

}  // namespace kvring::kernels
#endif
