#include "kernels/kv_pool.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"

#if KVRING_X86
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

constexpr float kLargestF16 = 65504;

template <KvType kType>
auto Rounded(float value) {
  if constexpr (kType == KvType::kF32) return value;
  if constexpr (kType == KvType::kF16) return FloatToF16(std::clamp(value, -kLargestF16, kLargestF16));
  if constexpr (kType == KvType::kBf16) return FloatToBf16(value);
}

// Where the groups of one position lie in a tile.
struct Groups {
  std::byte* keys;
  std::byte* values;
  int slot;  // in the group
};

template <KvType kType>
void WriteRow(const KvShape& shape, const Groups& to, const float* keys, const float* values) {
  using Element = decltype(Rounded<kType>(0));
  auto* k = reinterpret_cast<Element*>(to.keys);
  auto* v = reinterpret_cast<Element*>(to.values);
  for (int d = 0; d < shape.head_dim; ++d) {
    k[KeyIndex(kType, to.slot, d)] = Rounded<kType>(keys[d]);
    v[ValueIndex(kType, shape.head_dim, to.slot, d)] = Rounded<kType>(values[d]);
  }
}

// The scale of a row, or 0 for one of zeros (or of numbers so small that their scale has no inverse).
float ScaleOf(const float* row, int head_dim) {
  float largest = 0;
  for (int d = 0; d < head_dim; ++d) largest = std::max(largest, std::fabs(row[d]));
  const float scale = largest / 127.0F;
  return scale >= std::numeric_limits<float>::min() ? scale : 0.0F;
}

// Nearest integer, halves to even, of a magnitude below 2^22: the sum's own rounding.
int8_t Nearest(float value) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23
  return static_cast<int8_t>(std::bit_cast<int32_t>(value + kMagic) - std::bit_cast<int32_t>(kMagic));
}

// Element d goes to out[index(d)].
template <class Index>
void QuantizeRow(const float* row, int head_dim, Index index, std::byte* group, float* scale) {
  auto* out = reinterpret_cast<int8_t*>(group);
  *scale = ScaleOf(row, head_dim);
  const float inverse = *scale > 0 ? 1.0F / *scale : 0.0F;
  for (int d = 0; d < head_dim; ++d) out[index(d)] = Nearest(row[d] * inverse);
}

void WriteInt8Row(const KvShape& shape, const Groups& to, const float* keys, const float* values) {
  const int head_dim = shape.head_dim;
  const int64_t scales = int64_t{kSlotGroup} * head_dim;
  QuantizeRow(
      keys, head_dim, [&](int d) { return KeyIndex(KvType::kInt8, to.slot, d); }, to.keys,
      reinterpret_cast<float*>(to.keys + scales) + to.slot);
  QuantizeRow(
      values, head_dim, [&](int d) { return ValueIndex(KvType::kInt8, head_dim, to.slot, d); }, to.values,
      reinterpret_cast<float*>(to.values + scales) + to.slot);
}

#if KVRING_X86
// bf16, head_dim % 16 == 0. Keys: 8 pairs at a time, each to its row. Values: 16 dimensions at a time into
// the slot's half of the pairs; the other slot's half is left as it is.
KVRING_TARGET_AVX512 void WriteBf16RowAvx512(int head_dim, const Groups& to, const float* keys,
                                             const float* values) {
  auto* k = reinterpret_cast<int32_t*>(to.keys) + to.slot;
  auto* v = reinterpret_cast<int32_t*>(to.values) + to.slot / 2 * head_dim;
  const bool odd = to.slot % 2 == 1;
  for (int d = 0; d < head_dim; d += 16) {
    alignas(32) int32_t pairs[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(pairs),
                       (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(keys + d)));
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) k[(d / 2 + i) * kSlotGroup] = pairs[i];
    const __m512i wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(values + d)));
    _mm512_mask_storeu_epi16(v + d, odd ? 0xaaaaaaaaU : 0x55555555U,
                             odd ? _mm512_slli_epi32(wide, 16) : wide);
  }
}

// f16, head_dim % 16 == 0: 16 dimensions at a time; keys go each to its row.
KVRING_TARGET_AVX512 void WriteF16RowAvx512(int head_dim, const Groups& to, const float* keys,
                                            const float* values) {
  auto* k = reinterpret_cast<F16Bits*>(to.keys) + to.slot;
  auto* v = reinterpret_cast<F16Bits*>(to.values) + to.slot * head_dim;
  const __m512 largest = _mm512_set1_ps(kLargestF16);
  const auto halves = [&](const float* at) KVRING_TARGET_AVX512 {
    const __m512 bounded = _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), largest),
                                         _mm512_min_ps(largest, _mm512_loadu_ps(at)));
    return _mm512_cvtps_ph(bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  for (int d = 0; d < head_dim; d += 16) {
    alignas(32) F16Bits narrow[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(narrow), halves(keys + d));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) k[(d + i) * kSlotGroup] = narrow[i];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(v + d), halves(values + d));
  }
}
#endif

void WriteBf16Row(Isa isa, const KvShape& shape, const Groups& to, const float* keys, const float* values) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && shape.head_dim % 16 == 0)
    return WriteBf16RowAvx512(shape.head_dim, to, keys, values);
#endif
  (void)isa;
  WriteRow<KvType::kBf16>(shape, to, keys, values);
}

void WriteF16Row(Isa isa, const KvShape& shape, const Groups& to, const float* keys, const float* values) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && shape.head_dim % 16 == 0)
    return WriteF16RowAvx512(shape.head_dim, to, keys, values);
#endif
  (void)isa;
  WriteRow<KvType::kF16>(shape, to, keys, values);
}

}  // namespace

float StoredNumber(const KvShape& shape, const std::byte* group, int slot, int64_t index) {
  switch (shape.type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(group)[index];
    case KvType::kF16:
      return F16ToFloat(reinterpret_cast<const F16Bits*>(group)[index]);
    case KvType::kBf16:
      return Bf16ToFloat(reinterpret_cast<const Bf16Bits*>(group)[index]);
    case KvType::kInt8:
      break;
  }
  return ScalesOf(group, shape.head_dim)[slot] *
         static_cast<float>(reinterpret_cast<const int8_t*>(group)[index]);
}

KvGroup KvPool::group(int layer, int kv_head, BlockId block, int group_in_block) const {
  const std::byte* tile = data_.as<std::byte>() + tile_offset(layer, block, kv_head);
  const int64_t at = group_in_block * shape_.group_bytes();
  return {tile + at, tile + shape_.tile_bytes() / 2 + at};
}

void KvPool::Write(Isa isa, Slot at, const float* keys, const float* values) {
  for (int h = 0; h < shape_.kv_heads; ++h) {
    std::byte* tile = data_.as<std::byte>() + tile_offset(at.layer, at.block, h) +
                      at.slot / kSlotGroup * shape_.group_bytes();
    const Groups groups{tile, tile + shape_.tile_bytes() / 2, at.slot % kSlotGroup};
    const int64_t first = static_cast<int64_t>(h) * shape_.head_dim;
    switch (shape_.type) {
      case KvType::kF32:
        WriteRow<KvType::kF32>(shape_, groups, keys + first, values + first);
        break;
      case KvType::kF16:
        WriteF16Row(isa, shape_, groups, keys + first, values + first);
        break;
      case KvType::kBf16:
        WriteBf16Row(isa, shape_, groups, keys + first, values + first);
        break;
      case KvType::kInt8:
        WriteInt8Row(shape_, groups, keys + first, values + first);
        break;
    }
  }
}

void KvPool::CopyBlock(BlockId from, BlockId to) {
  const auto bytes = static_cast<size_t>(shape_.tile_bytes() * shape_.kv_heads);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    std::byte* data = data_.as<std::byte>();
    std::memcpy(data + tile_offset(layer, to, 0), data + tile_offset(layer, from, 0), bytes);
  }
}

void KvPool::ReadBlock(BlockId block, std::byte* out) const {
  const auto bytes = static_cast<size_t>(shape_.tile_bytes() * shape_.kv_heads);
  for (int layer = 0; layer < shape_.layers; ++layer, out += bytes)
    std::memcpy(out, data_.as<std::byte>() + tile_offset(layer, block, 0), bytes);
}

void KvPool::WriteBlock(BlockId block, const std::byte* bytes) {
  const auto layer_bytes = static_cast<size_t>(shape_.tile_bytes() * shape_.kv_heads);
  for (int layer = 0; layer < shape_.layers; ++layer, bytes += layer_bytes)
    std::memcpy(data_.as<std::byte>() + tile_offset(layer, block, 0), bytes, layer_bytes);
}

}  // namespace kvring::kernels
