#include "kernels/kv_pool.h"

#include <cstring>

#include "kernels/half.h"

namespace kvring::kernels {
namespace {

template <KvType kType>
auto Stored(float value) {
  if constexpr (kType == KvType::kF32) {
    return value;
  } else {
    return FloatToBf16(value);
  }
}

template <KvType kType>
void WriteTile(const KvShape& shape, int slot, const float* keys, const float* values, std::byte* tile) {
  using Element = decltype(Stored<kType>(0));
  const int head_dim = shape.head_dim;
  const int64_t group_elements = static_cast<int64_t>(slot / kSlotGroup) * head_dim * kSlotGroup;
  Element* k = reinterpret_cast<Element*>(tile) + group_elements;
  Element* v = k + static_cast<int64_t>(shape.slots()) * head_dim;
  for (int d = 0; d < head_dim; ++d) {
    k[KeyIndex(kType, slot % kSlotGroup, d)] = Stored<kType>(keys[d]);
    v[ValueIndex(kType, head_dim, slot % kSlotGroup, d)] = Stored<kType>(values[d]);
  }
}

}  // namespace

KvGroup KvPool::group(int layer, int kv_head, BlockId block, int group_in_block) const {
  const std::byte* tile = data_.as<std::byte>() + tile_offset(layer, block, kv_head);
  const int64_t group_bytes = shape_.element_bytes() * kSlotGroup * shape_.head_dim;
  return {tile + group_in_block * group_bytes, tile + shape_.tile_bytes() / 2 + group_in_block * group_bytes};
}

void KvPool::Write(Slot at, const float* keys, const float* values) {
  for (int h = 0; h < shape_.kv_heads; ++h) {
    std::byte* tile = data_.as<std::byte>() + tile_offset(at.layer, at.block, h);
    const int64_t first = static_cast<int64_t>(h) * shape_.head_dim;
    if (shape_.type == KvType::kF32) {
      WriteTile<KvType::kF32>(shape_, at.slot, keys + first, values + first, tile);
    } else {
      WriteTile<KvType::kBf16>(shape_, at.slot, keys + first, values + first, tile);
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

}  // namespace kvring::kernels
