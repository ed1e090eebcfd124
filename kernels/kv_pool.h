// KvPool: keys and values of all layers, in blocks that the engine hands out. Per (layer, block, KV head)
// there is one tile: keys then values, in groups of 16 slots (slots is block_size rounded up to 16):
//   f32    K [head_dim][16 slots]            V [16 slots][head_dim]               the exact path
//   f16    as f32, rounded to nearest; beyond 65504 held there
//   bf16   K [head_dim/2][16 slots][2 dims]  V [8][head_dim][2 slots]             pairs as vdpbf16ps
//   multiplies them
//   int8   as bf16, in pairs as vpdpwssd multiplies them once widened; each followed by 16 f32
//   scales, one per slot: a head's key (value) of one position is scale x integers of -127 … 127, scale its
//   largest magnitude / 127, rounded to nearest: an error of at most scale / 2 per element
// K is transposed so that one vector lane is one position. The memory is taken as blocks are first written.
// Writes to distinct positions may run at once; reads may run at once with each other.
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "kernels/aligned_buffer.h"
#include "kernels/isa.h"

namespace kvring::kernels {

enum class KvType { kF32, kF16, kBf16, kInt8 };
/// Whether two neighbouring dimensions of a key (two slots of a value) stand together.
constexpr bool InPairs(KvType type) { return type == KvType::kBf16 || type == KvType::kInt8; }
constexpr int kSlotGroup = 16;

struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int num_blocks = 0;
  KvType type = KvType::kBf16;

  int slots() const { return (block_size + kSlotGroup - 1) / kSlotGroup * kSlotGroup; }
  int64_t element_bytes() const { return type == KvType::kF32 ? 4 : type == KvType::kInt8 ? 1 : 2; }
  /// Of one key or value of one head: 4 for int8's scale.
  int64_t scale_bytes() const { return type == KvType::kInt8 ? 4 : 0; }
  /// Of the keys (values) of one group.
  int64_t group_bytes() const { return kSlotGroup * (element_bytes() * head_dim + scale_bytes()); }
  int64_t tile_bytes() const { return 2 * group_bytes() * (slots() / kSlotGroup); }
  int64_t block_bytes() const { return tile_bytes() * kv_heads * layers; }
  int64_t token_bytes() const { return 2 * (element_bytes() * head_dim + scale_bytes()) * kv_heads * layers; }
};

/// Where one group of 16 slots of one tile lies.
struct KvGroup {
  const std::byte* keys;
  const std::byte* values;
};

/// Element of a group: dimension d of a slot in 0..15.
inline int64_t KeyIndex(KvType type, int slot, int d) {
  return InPairs(type) ? (d / 2 * kSlotGroup + slot) * 2 + d % 2 : d * kSlotGroup + slot;
}
inline int64_t ValueIndex(KvType type, int head_dim, int slot, int d) {
  return InPairs(type) ? (slot / 2 * head_dim + d) * 2 + slot % 2 : slot * head_dim + d;
}
/// int8's 16 scales of a group's keys (values).
inline const float* ScalesOf(const std::byte* group, int head_dim) {
  return reinterpret_cast<const float*>(group + kSlotGroup * head_dim);
}
/// The number that a group holds: element `index` of slot `slot`.
float StoredNumber(const KvShape& shape, const std::byte* group, int slot, int64_t index);

class KvPool {
 public:
  explicit KvPool(const KvShape& shape)
      : shape_(shape), data_(static_cast<size_t>(shape.block_bytes() * shape.num_blocks)) {}

  const KvShape& shape() const { return shape_; }
  KvGroup group(int layer, int kv_head, BlockId block, int group_in_block) const;

  /// Writes the keys and values (kv_heads x head_dim each) of one position.
  struct Slot {
    int layer;
    BlockId block;
    int slot;
  };
  void Write(Isa isa, Slot at, const float* keys, const float* values);
  /// Copies a block of every layer.
  void CopyBlock(BlockId from, BlockId to);
  /// A block of every layer as shape().block_bytes() bytes, out of the pool and into it.
  void ReadBlock(BlockId block, std::byte* out) const;
  void WriteBlock(BlockId block, const std::byte* bytes);

 private:
  int64_t tile_offset(int layer, BlockId block, int kv_head) const {
    const int64_t blocks_before = static_cast<int64_t>(layer) * shape_.num_blocks + block.value;
    return (blocks_before * shape_.kv_heads + kv_head) * shape_.tile_bytes();
  }

  KvShape shape_;
  AlignedBuffer data_;
};

}  // namespace kvring::kernels
