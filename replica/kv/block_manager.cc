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
      window_(options.window),
      key_(options.key),
      prefix_caching_(options.prefix_caching),
      chain_(options.chain != nullptr ? options.chain : DefaultChain),
      blocks_(options.num_blocks),
      stored_tokens_(static_cast<size_t>(options.num_blocks) * options.block_size),
      queue_(options.num_blocks),
      tier_(options.tier),
      events_(options.event_capacity) {
  KVRING_CHECK(options.num_blocks > 0 && options.block_size > 0 && options.window >= 0);
  KVRING_CHECK(options.window == 0 || !tier_.enabled());
  free_.reserve(options.num_blocks);
  for (int32_t b = options.num_blocks - 1; b >= 0; --b) free_.push_back(b);  // block 0 is handed out first
  index_.reserve(options.num_blocks);
  for (const CacheEvent& restored : Snapshot()) events_.Append(restored);
}

std::optional<int32_t> BlockManager::Admit(BlockTable& table, const AdmitRequest& request) {
  KVRING_CHECK(!table.held && table.blocks.empty());
  FindPrefix(table, request.tokens, request.max_cached_tokens, found_);
  const int32_t whole_history = BlocksFor(static_cast<int32_t>(request.tokens.size()));
  const auto end =
      static_cast<int32_t>(std::min<int64_t>(whole_history, int64_t{found_.first} + request.max_blocks));
  const int32_t fresh = end - found_.end();
  const auto idle = std::ranges::count_if(
      found_.blocks, [&](int32_t b) { return blocks_[b].references == 0 && !queue_.IsPinned(b); });
  if (fresh + request.headroom_blocks > available_blocks() - idle) return std::nullopt;

  const int32_t in_tier = BlocksInTier(table, request.tokens, found_.end(), request.max_cached_tokens);
  TouchInTier(table, request.tokens, found_.end(), in_tier);
  table.blocks.assign(found_.first, kNullBlock);
  table.null_blocks = found_.first;
  for (const int32_t block : found_.blocks) {
    Reference(block);
    table.blocks.push_back({block});
  }
  table.committed_blocks = found_.end();
  for (int32_t i = 0; i < fresh; ++i) table.blocks.push_back({Take()});
  LoadFromTier(table, request.tokens, in_tier);
  table.held = true;
  Announce(table, request.tokens);
  const int32_t cached = table.committed_blocks * block_size_;
  CountAdmission(request, cached, found_.collided);
  return cached;
}

void BlockManager::CountAdmission(const AdmitRequest& request, int32_t cached, bool collided) {
  const auto length = static_cast<int32_t>(request.tokens.size());
  stats_.collisions += collided ? 1 : 0;
  (request.readmission ? stats_.readmitted_tokens : stats_.query_tokens) += length;
  (request.readmission ? stats_.readmitted_hit_tokens : stats_.hit_tokens) += cached;
  if (request.readmission) return;
  const bool full = cached + block_size_ > std::min(request.max_cached_tokens, length);
  ++(cached == 0 ? stats_.misses : full ? stats_.full_hits : stats_.partial_hits);
}

// Only what an admitted history will compute next: a decode's blocks are nobody else's yet.
void BlockManager::Announce(BlockTable& table, std::span<const TokenId> tokens) {
  table.announced_blocks = table.committed_blocks;
  if (!prefix_caching_) return;
  const int32_t whole = static_cast<int32_t>(tokens.size()) / block_size_;
  HashUpTo(table, tokens, whole);
  for (; table.announced_blocks < whole; ++table.announced_blocks)
    ++announced_[table.hashes[table.announced_blocks]];
}

// Blocks [committed, end) are computed, or will not be.
void BlockManager::Withdraw(BlockTable& table, int32_t end) {
  for (int32_t i = table.committed_blocks; i < std::min(end, table.announced_blocks); ++i) {
    const auto entry = announced_.find(table.hashes[i]);
    if (--entry->second == 0) announced_.erase(entry);
  }
}

std::optional<BlockCopy> BlockManager::CopyOfLastBlock(BlockTable& table, std::span<const TokenId> tokens) {
  const auto length = static_cast<int32_t>(tokens.size());
  const int32_t last = length / block_size_ - 1;
  const bool taken = static_cast<int32_t>(table.blocks.size()) > last;
  if (!prefix_caching_ || length % block_size_ != 0 || table.committed_blocks != last || !taken)
    return std::nullopt;
  HashUpTo(table, tokens, last + 1);
  const Lookup found = Find(table, tokens, last, last == 0 ? kNone : table.blocks[last - 1].value);
  if (found.block == kNone) return std::nullopt;
  ++stats_.last_block_copies;
  copying_.insert(copying_.end(), {BlockId{found.block}, table.blocks[last]});
  return BlockCopy{{found.block}, table.blocks[last], block_size_ - 1};
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
    result.copy = {shared, table.blocks[first], computed % block_size_};
    copying_.insert(copying_.end(), {shared, table.blocks[first]});
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
  Withdraw(table, whole);
  table.committed_blocks = std::max(table.committed_blocks, whole);
}

void BlockManager::CommitBlock(BlockTable& table, std::span<const TokenId> history, int32_t index) {
  const BlockId block = table.blocks[index];
  const BlockId parent = index == 0 ? kNullBlock : table.blocks[index - 1];
  // Behind a block that is not matchable (a collision, a cleared cache) nothing can be found: not registered.
  const bool reachable = index == 0 || window_ > 0 || blocks_[parent.value].serial != 0;
  if (!reachable || blocks_[block.value].serial != 0) return;
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

int32_t BlockManager::FirstSeenBlock(int32_t position) const {
  return window_ == 0 ? 0 : std::max(0, position - window_ + 1) / block_size_;
}

int32_t BlockManager::FreeBehind(BlockTable& table, int32_t computed) {
  const int32_t end = std::min(FirstSeenBlock(computed), static_cast<int32_t>(table.blocks.size()) - 1);
  const int32_t passed = end - table.null_blocks;
  if (passed <= 0) return 0;
  const std::span<BlockId> behind = std::span(table.blocks).subspan(table.null_blocks, passed);
  Keep(behind, table.retention);
  FreeBlocks(behind);
  std::ranges::fill(behind, kNullBlock);
  table.null_blocks = end;
  return passed;
}

int32_t BlockManager::BlocksHeldAtMost(int32_t tokens_per_step) const {
  // n consecutive positions touch at most ceil((n - 1) / block_size) + 1 blocks; here n = window - 1 + step.
  return window_ == 0 ? std::numeric_limits<int32_t>::max() : BlocksFor(window_ + tokens_per_step - 2) + 1;
}

BlockTable BlockManager::Fork(const BlockTable& table, int32_t computed) {
  KVRING_CHECK(table.held);
  BlockTable fork = table;
  const auto whole = static_cast<size_t>(computed / block_size_);
  fork.blocks.resize(std::min<size_t>(table.blocks.size(), BlocksFor(computed)));
  fork.hashes.resize(std::min(table.hashes.size(), whole));  // beyond, its history goes its own way
  fork.checks.resize(std::min(table.checks.size(), whole));
  fork.announced_blocks = fork.committed_blocks;
  for (const BlockId block : fork.blocks) {
    if (block != kNullBlock) Reference(block.value);
  }
  return fork;
}

// Pins are given to the first blocks of a table: whoever is pinned has pinned ancestors.
void BlockManager::Keep(std::span<const BlockId> blocks, const CacheRetention& retention) {
  int32_t pins = std::max(0, total_blocks() / 2 - queue_.pinned());
  for (const BlockId block : blocks) {
    if (block == kNullBlock || blocks_[block.value].serial == 0) continue;
    const bool refused =
        retention.retention == Retention::kPinned && !queue_.IsPinned(block.value) && --pins < 0;
    stats_.pins_refused += refused ? 1 : 0;
    queue_.Raise(block.value, refused ? Retention::kHigh : retention.retention, now_ + retention.ttl);
  }
}

void BlockManager::Release(BlockTable& table) {
  if (!table.held) {
    ++stats_.double_frees;
    return;
  }
  Withdraw(table, table.announced_blocks);
  Keep(table.blocks, table.retention);
  std::ranges::reverse(table.blocks);  // leaves first: they become the older ones of the eviction queue
  FreeBlocks(table.blocks);
  table.blocks.clear();
  table.committed_blocks = 0;
  table.announced_blocks = 0;
  table.held = false;
}

void BlockManager::FreeBlocks(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    if (block != kNullBlock) Dereference(block.value);
  }
}

int32_t BlockManager::Evict(int32_t n) {
  int32_t evicted = 0;
  for (; evicted < n; ++evicted) {
    const int32_t block = queue_.Victim();
    if (block == kNone) break;
    queue_.Remove(block);
    SaveToTier(block);
    Unregister(block);
    free_.push_back(block);
    ++stats_.evictions;
  }
  return evicted;
}

void BlockManager::AdvanceTo(Instant now) {
  now_ = now;
  copying_.clear();
  queue_.Expire(now);
}

void BlockManager::Clear() {
  for (int32_t block = 0; block < total_blocks(); ++block) {
    Block& b = blocks_[block];
    if (b.serial == 0) continue;
    b.serial = 0;
    if (b.references == 0) {
      queue_.Remove(block);
      free_.push_back(block);
    }
    queue_.Forget(block);
  }
  index_.clear();
  tier_.Clear();
  events_.Append({.kind = CacheEvent::Kind::kCleared});
}

std::vector<CacheEvent> BlockManager::Snapshot() const {
  struct Held {
    int32_t depth;
    CacheEvent event;
  };
  std::vector<Held> held;
  for (const Block& b : blocks_) {
    if (b.serial != 0) held.push_back({b.depth, {CacheEvent::Kind::kStored, b.hash, b.parent_hash}});
  }
  for (const StoredBlock* b : tier_.Contents()) {
    if (!index_.contains(b->hash))
      held.push_back({b->depth, {CacheEvent::Kind::kStored, b->hash, b->parent}});
  }
  std::ranges::stable_sort(held, {}, &Held::depth);
  std::vector<CacheEvent> events;
  events.reserve(held.size());
  for (const Held& h : held) events.push_back(h.event);
  return events;
}

// A block whose parent was evicted before it (possible only when FreeBlocks gave the parent back first)
// matches nothing.
bool BlockManager::IsOrphan(int32_t block) const {
  const Block& b = blocks_[block];
  return b.parent != kNone && blocks_[b.parent].serial != b.parent_serial;
}

void BlockManager::DropOrphan(int32_t block) {
  if (blocks_[block].references == 0) {
    queue_.Remove(block);
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
  if (blocks_[block].references++ == 0) queue_.Remove(block);
}

void BlockManager::Dereference(int32_t block) {
  Block& b = blocks_[block];
  if (b.references == 0) {
    ++stats_.double_frees;
    return;
  }
  if (--b.references > 0) return;
  if (b.serial != 0) {
    queue_.Push(block, now_);
  } else {
    free_.push_back(block);
  }
}

void BlockManager::Register(const BlockTable& table, std::span<const TokenId> history, int32_t index,
                            int32_t parent) {
  const int32_t block = table.blocks[index].value;
  Block& b = blocks_[block];
  b.serial = next_serial_++;
  b.parent = window_ > 0 ? kNone : parent;
  b.parent_serial = b.parent == kNone ? 0 : blocks_[parent].serial;
  b.check = Keyed() ? table.checks[index] : 0;
  b.depth = index;
  b.hash = table.hashes[index];
  b.parent_hash = table.parent_hash(index);
  b.root = table.root;
  std::ranges::copy(Slice(history, index),
                    stored_tokens_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  index_[b.hash] = block;
  if (!tier_.Holds(b.hash)) events_.Append({CacheEvent::Kind::kStored, b.hash, b.parent_hash});
}

void BlockManager::Unregister(int32_t block) {
  Block& b = blocks_[block];
  index_.erase(b.hash);
  b.serial = 0;
  queue_.Forget(block);
  if (!tier_.Holds(b.hash)) events_.Append({CacheEvent::Kind::kRemoved, b.hash, b.parent_hash});
}

}  // namespace kvring::replica
