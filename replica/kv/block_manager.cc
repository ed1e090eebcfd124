#include "replica/kv/block_manager.h"

#include <algorithm>

#include "common/check.h"

namespace kvring::replica {
namespace {

BlockHash DefaultChain(BlockHash parent, std::span<const TokenId> block) { return ChainNext(parent, block); }

}  // namespace

CacheRoot MakeCacheRoot(const CacheIdentity& identity) {
  // The check hashes the same fields in another order: an accident in one says nothing about the other.
  const CacheIdentity turned{.model = identity.salt, .adapter = identity.model, .salt = identity.adapter};
  return {ChainRoot(identity), ChainRoot(turned).value};
}

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      prefix_caching_(options.prefix_caching),
      chain_(options.chain != nullptr ? options.chain : DefaultChain),
      blocks_(options.num_blocks),
      stored_tokens_(static_cast<size_t>(options.num_blocks) * options.block_size),
      events_(options.event_capacity) {
  KVRING_CHECK(options.num_blocks > 0 && options.block_size > 0);
  free_.reserve(options.num_blocks);
  for (int32_t b = options.num_blocks - 1; b >= 0; --b) free_.push_back(b);  // block 0 is handed out first
  index_.reserve(options.num_blocks);
}

std::optional<int32_t> BlockManager::Admit(BlockTable& table, const AdmitRequest& request) {
  KVRING_CHECK(!table.held && table.blocks.empty());
  matched_.clear();
  const bool collided = MatchBlocks(table, request.tokens, request.max_cached_tokens, matched_);
  const auto length = static_cast<int32_t>(request.tokens.size());
  const int32_t fresh = BlocksFor(length) - static_cast<int32_t>(matched_.size());
  const auto idle = std::ranges::count_if(matched_, [&](int32_t b) { return blocks_[b].references == 0; });
  if (fresh + request.headroom_blocks > available_blocks() - idle) return std::nullopt;

  for (const int32_t block : matched_) {
    Reference(block);
    table.blocks.push_back({block});
  }
  table.committed_blocks = static_cast<int32_t>(matched_.size());
  for (int32_t i = 0; i < fresh; ++i) table.blocks.push_back({Take()});
  table.held = true;

  const int32_t cached = table.committed_blocks * block_size_;
  stats_.collisions += collided ? 1 : 0;
  (request.readmission ? stats_.readmitted_tokens : stats_.query_tokens) += length;
  (request.readmission ? stats_.readmitted_hit_tokens : stats_.hit_tokens) += cached;
  return cached;
}

int32_t BlockManager::Match(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens) const {
  std::vector<int32_t> matched;
  MatchBlocks(table, tokens, max_tokens, matched);
  return static_cast<int32_t>(matched.size()) * block_size_;
}

BlockManager::Extension BlockManager::Extend(BlockTable& table, int32_t computed, int32_t end) {
  KVRING_CHECK(table.held);
  const auto have = static_cast<int32_t>(table.blocks.size());
  const int32_t add = std::max(0, BlocksFor(end) - have);
  const int32_t first = computed / block_size_;  // the block of the first position to be written
  const bool copy = first < have && blocks_[table.blocks[first].value].references > 1;
  if (add + (copy ? 1 : 0) > available_blocks()) return {};

  Extension result{.ok = true};
  if (copy) {
    const BlockId shared = table.blocks[first];
    table.blocks[first] = {Take()};
    Dereference(shared.value);
    ++stats_.copies;
    result = {true, shared, table.blocks[first], computed % block_size_};
  }
  // A matchable block is never written again.
  KVRING_CHECK(first >= have || blocks_[table.blocks[first].value].serial == 0);
  for (int32_t i = 0; i < add; ++i) table.blocks.push_back({Take()});
  return result;
}

void BlockManager::Commit(BlockTable& table, std::span<const TokenId> history, int32_t computed) {
  const int32_t whole = computed / block_size_;
  for (int32_t index = table.committed_blocks; index < whole; ++index) {
    if (prefix_caching_) CommitBlock(table, history, index);
  }
  table.committed_blocks = std::max(table.committed_blocks, whole);
}

void BlockManager::CommitBlock(BlockTable& table, std::span<const TokenId> history, int32_t index) {
  const BlockId block = table.blocks[index];
  const BlockId parent = index == 0 ? kNullBlock : table.blocks[index - 1];
  // Behind a block that is not matchable (a collision, a cleared cache, a window) nothing can be found: not
  // registered.
  const bool reachable = index == 0 || (parent != kNullBlock && blocks_[parent.value].serial != 0);
  if (!reachable || block == kNullBlock || blocks_[block.value].serial != 0) return;
  HashUpTo(table, history, index + 1);
  const Lookup found = Find(table, history, index, parent.value);
  if (found.block != kNone) return Merge(table, index, found.block);
  if (found.collided != kNone && !IsOrphan(found.collided)) {
    ++stats_.collisions;
    return;
  }
  if (found.collided != kNone) DropOrphan(found.collided);
  Register(table, history, index, parent.value);
}

void BlockManager::Merge(BlockTable& table, int32_t index, int32_t equal) {
  Reference(equal);
  Dereference(table.blocks[index].value);
  table.blocks[index] = {equal};
  ++stats_.merged_blocks;
}

BlockTable BlockManager::Fork(const BlockTable& table, int32_t computed) {
  KVRING_CHECK(table.held);
  BlockTable fork = table;
  const auto whole = static_cast<size_t>(computed / block_size_);
  fork.blocks.resize(std::min<size_t>(table.blocks.size(), BlocksFor(computed)));
  fork.hashes.resize(std::min(table.hashes.size(), whole));  // beyond, its history goes its own way
  for (const BlockId block : fork.blocks) {
    if (block != kNullBlock) Reference(block.value);
  }
  return fork;
}

void BlockManager::Release(BlockTable& table) {
  if (!table.held) {
    ++stats_.double_frees;
    return;
  }
  std::ranges::reverse(table.blocks);  // leaves first: they become the older ones of the LRU list
  FreeBlocks(table.blocks);
  table.blocks.clear();
  table.committed_blocks = 0;
  table.held = false;
}

void BlockManager::FreeBlocks(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (block != kNullBlock) Dereference(block.value);
  }
}

int32_t BlockManager::Evict(int32_t n) {
  int32_t evicted = 0;
  for (; evicted < n && oldest_ != kNone; ++evicted) {
    const int32_t block = oldest_;
    Unlink(block);
    Unregister(block);
    free_.push_back(block);
    ++stats_.evictions;
  }
  return evicted;
}

void BlockManager::Clear() {
  while (oldest_ != kNone) {
    free_.push_back(oldest_);
    Unlink(oldest_);
  }
  for (Block& block : blocks_) block.serial = 0;
  index_.clear();
  events_.Append({.kind = CacheEvent::Kind::kCleared});
}

std::vector<CacheEvent> BlockManager::Snapshot() const {
  std::vector<const Block*> matchable;
  for (const Block& block : blocks_) {
    if (block.serial != 0) matchable.push_back(&block);
  }
  // A block is registered after the one before it: the order of registration puts parents first.
  std::ranges::sort(matchable, {}, &Block::serial);
  std::vector<CacheEvent> events;
  events.reserve(matchable.size());
  for (const Block* block : matchable)
    events.push_back({CacheEvent::Kind::kStored, block->hash, block->parent_hash});
  return events;
}

std::span<const TokenId> BlockManager::Slice(std::span<const TokenId> tokens, int32_t index) const {
  return tokens.subspan(static_cast<size_t>(index) * block_size_, block_size_);
}

std::span<const TokenId> BlockManager::StoredTokens(int32_t block) const {
  return Slice(stored_tokens_, block);
}

void BlockManager::HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const {
  for (auto i = static_cast<int32_t>(table.hashes.size()); i < blocks; ++i) {
    table.hashes.push_back(chain_(i == 0 ? table.root.hash : table.hashes.back(), Slice(tokens, i)));
  }
}

BlockManager::Lookup BlockManager::Find(const BlockTable& table, std::span<const TokenId> tokens,
                                        int32_t index, int32_t parent) const {
  const auto entry = index_.find(table.hashes[index]);
  if (entry == index_.end()) return {};
  const Block& candidate = blocks_[entry->second];
  // Serials are never reused: equal ones mean the same registration of the same block.
  const bool same_parent =
      index == 0 ? candidate.parent == kNone : candidate.parent_serial == blocks_[parent].serial;
  const bool equal = same_parent && candidate.root == table.root &&
                     std::ranges::equal(StoredTokens(entry->second), Slice(tokens, index));
  return equal ? Lookup{.block = entry->second} : Lookup{.collided = entry->second};
}

bool BlockManager::MatchBlocks(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens,
                               std::vector<int32_t>& matched) const {
  if (!prefix_caching_) return false;
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size())) / block_size_;
  int32_t parent = kNone;
  for (int32_t index = 0; index < limit; ++index) {
    HashUpTo(table, tokens, index + 1);
    const Lookup found = Find(table, tokens, index, parent);
    if (found.block == kNone) return found.collided != kNone;
    matched.push_back(found.block);
    parent = found.block;
  }
  return false;
}

// A block whose parent was evicted before it (possible only when a window gave the parent back first) matches
// nothing.
bool BlockManager::IsOrphan(int32_t block) const {
  const Block& b = blocks_[block];
  return b.parent != kNone && blocks_[b.parent].serial != b.parent_serial;
}

void BlockManager::DropOrphan(int32_t block) {
  if (blocks_[block].references == 0) {
    Unlink(block);
    free_.push_back(block);
  }
  Unregister(block);
}

int32_t BlockManager::Take() {
  if (free_.empty()) Evict(1);
  KVRING_CHECK(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  blocks_[block].references = 1;
  return block;
}

void BlockManager::Reference(int32_t block) {
  if (blocks_[block].references++ == 0) Unlink(block);
}

void BlockManager::Dereference(int32_t block) {
  Block& b = blocks_[block];
  if (b.references == 0) {
    ++stats_.double_frees;
    return;
  }
  if (--b.references > 0) return;
  if (b.serial != 0) {
    PushNewest(block);
  } else {
    free_.push_back(block);
  }
}

void BlockManager::Register(const BlockTable& table, std::span<const TokenId> history, int32_t index,
                            int32_t parent) {
  const int32_t block = table.blocks[index].value;
  Block& b = blocks_[block];
  b.serial = next_serial_++;
  b.parent = parent;
  b.parent_serial = parent == kNone ? 0 : blocks_[parent].serial;
  b.hash = table.hashes[index];
  b.parent_hash = index == 0 ? table.root.hash : table.hashes[index - 1];
  b.root = table.root;
  std::ranges::copy(Slice(history, index),
                    stored_tokens_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  index_[b.hash] = block;
  events_.Append({CacheEvent::Kind::kStored, b.hash, b.parent_hash});
}

void BlockManager::Unregister(int32_t block) {
  Block& b = blocks_[block];
  index_.erase(b.hash);
  b.serial = 0;
  events_.Append({CacheEvent::Kind::kRemoved, b.hash, b.parent_hash});
}

void BlockManager::PushNewest(int32_t block) {
  Block& b = blocks_[block];
  b.newer = kNone;
  b.older = newest_;
  (newest_ == kNone ? oldest_ : blocks_[newest_].newer) = block;
  newest_ = block;
  ++cached_count_;
}

void BlockManager::Unlink(int32_t block) {
  const Block& b = blocks_[block];
  (b.older == kNone ? oldest_ : blocks_[b.older].newer) = b.newer;
  (b.newer == kNone ? newest_ : blocks_[b.newer].older) = b.older;
  --cached_count_;
}

}  // namespace kvring::replica
