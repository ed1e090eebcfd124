// BlockManager and its host tier: saving what is evicted, loading what follows a cached prefix.
#include <algorithm>

#include "replica/kv/block_manager.h"

namespace kvring::replica {

StoredBlock BlockManager::Describe(int32_t block) const {
  const Block& b = blocks_[block];
  const std::span<const TokenId> tokens = StoredTokens(block);
  return {b.hash, b.parent_hash, b.check, b.root, b.depth, {tokens.begin(), tokens.end()}};
}

// The slot that holds block `index` of a hashed history.
int32_t BlockManager::SlotOf(const BlockTable& table, std::span<const TokenId> tokens, int32_t index) const {
  if (!tier_.Holds(table.hashes[index])) return HostTier::kNone;
  const std::span<const TokenId> own = Slice(tokens, index);
  return tier_.Find({table.hashes[index],
                     table.parent_hash(index),
                     table.checks[index],
                     table.root,
                     index,
                     {own.begin(), own.end()}});
}

int32_t BlockManager::BlocksInTier(BlockTable& table, std::span<const TokenId> tokens, int32_t first,
                                   int32_t max_tokens) const {
  if (!prefix_caching_ || !tier_.enabled()) return 0;
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size())) / block_size_;
  int32_t end = first;
  for (; end < limit; ++end) {
    HashUpTo(table, tokens, end + 1);
    if (SlotOf(table, tokens, end) == HostTier::kNone) break;
  }
  return end - first;
}

// Before the blocks to load into are taken, which may push others out of the tier. The last first, so that it
// is given up before those it needs.
void BlockManager::TouchInTier(const BlockTable& table, std::span<const TokenId> tokens, int32_t first,
                               int32_t blocks) {
  for (int32_t index = first + blocks - 1; index >= first; --index) tier_.Touch(SlotOf(table, tokens, index));
}

// As many as are still there, at most `blocks`. Not over a block that a copy of this step reads or writes,
// and not beside a block of the same hash that was no match (an orphan, a collision).
void BlockManager::LoadFromTier(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) {
  for (const int32_t end = table.committed_blocks + blocks; table.committed_blocks < end;) {
    const int32_t index = table.committed_blocks;
    const int32_t slot = SlotOf(table, tokens, index);
    const BlockId block = table.blocks[index];
    if (slot == HostTier::kNone || index_.contains(table.hashes[index])) return;
    if (std::ranges::find(copying_, block) != copying_.end()) return;
    if (!tier_.Get(slot, block)) {
      ++stats_.tier_damaged_blocks;
      events_.Append({CacheEvent::Kind::kRemoved, table.hashes[index], table.parent_hash(index)});
      return;
    }
    Register(table, tokens, index, index == 0 ? kNone : table.blocks[index - 1].value);
    ++table.committed_blocks;
    stats_.tier_hit_tokens += block_size_;
  }
}

void BlockManager::SaveToTier(int32_t block) {
  if (!tier_.enabled() || queue_.ClassOf(block) == Retention::kLow) return;
  const std::optional<StoredBlock> given_up = tier_.Put({block}, Describe(block));
  if (!given_up.has_value() || index_.contains(given_up->hash)) return;
  events_.Append({CacheEvent::Kind::kRemoved, given_up->hash, given_up->parent});
}

}  // namespace kvring::replica
