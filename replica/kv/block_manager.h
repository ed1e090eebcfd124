// BlockManager: who owns which block of the KV pool, and which blocks hold a prefix that can be reused.
//
//   free     in no table and not matchable      a block is in exactly one of the three;
//   cached   in no table, matchable             free + cached + used = total after every operation
//   used     in one or more tables
//
// Only the last block of a table may be part-filled. A block becomes matchable when all its tokens have been
// computed (Commit); a match compares the hash, the tokens and the identity of the block before it, so equal
// hashes can never serve another's text: a collision is a miss and is counted. Equal blocks computed twice
// are merged at Commit: a table's matchable blocks are always the cache's own, so whoever holds a block holds
// its ancestors, and releasing a table last block first keeps victims leaf-first (eviction_queue.h), O(1). An
// operation that lacks room changes nothing. Whoever copies blocks asynchronously holds a Fork of the table
// until the copy is complete: blocks go back when the last holder has let go, in whatever order they end.
//
// Under a sliding window (options.window > 0) FreeBehind gives back what no later position sees, so a
// sequence holds a bounded number of blocks however long it gets. A prefix is then found by what the next
// position sees of it alone: blocks before that may be gone, their entries are null. Since the block before
// may be gone too, it is identified by hash, a second, keyed chain and its tokens instead. A model that mixes
// windows has none here: its blocks stay as long as any layer needs them.
//
// With a host tier (options.tier; not under a window) an evicted block is saved there first, unless it is of
// class kLow, and Admit loads what follows the cached prefix back into fresh blocks. What either holds is
// matchable, and the events and the snapshot speak of both as one.
//
// Copy-on-write and prefix sharing as in PagedAttention (Kwon et al. 2023, section 4). Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/block_hash.h"
#include "common/ids.h"
#include "replica/kv/block_manager_options.h"
#include "replica/kv/block_manager_stats.h"
#include "replica/kv/block_table.h"
#include "replica/kv/cache_events.h"
#include "replica/kv/eviction_queue.h"
#include "replica/kv/host_tier.h"

namespace kvring::replica {

class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  struct AdmitRequest {
    std::span<const TokenId> tokens;  // the whole history: prompt, and output of a sequence that comes back
    int32_t max_cached_tokens =
        0;  // at most this many are taken from the cache (history - 1 at most for a sampler)
    int32_t headroom_blocks = 0;  // refuse unless that many blocks stay available
    /// Take no more than that many now, cached ones included (BlocksHeldAtMost); Extend takes the others.
    int32_t max_blocks = std::numeric_limits<int32_t>::max();
    bool readmission = false;  // counted apart: see BlockManagerStats
  };
  /// Fills an empty table with the longest cached prefix and fresh blocks for the rest of `tokens`. Returns
  /// the cached tokens (whole blocks), or nullopt when there is no room; then nothing has changed and nothing
  /// was counted.
  std::optional<int32_t> Admit(BlockTable& table, const AdmitRequest& request);

  /// Tokens that Admit would find now. Counts and changes nothing (beyond the table's kept hashes).
  int32_t Match(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens) const;
  /// Another table is computing the block that follows what Match finds: waiting for it saves computing it
  /// twice.
  bool IsBeingComputed(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens) const;

  /// After Admit of a history whose whole blocks are all in the cache, the last one left out for its last
  /// token alone: the others of its tokens can be copied into the table's own block. Not counted as cached.
  std::optional<BlockCopy> CopyOfLastBlock(BlockTable& table, std::span<const TokenId> tokens);

  struct Extension {
    bool ok = false;
    std::optional<BlockCopy> copy;  // to be made before anything is written
  };
  /// Makes positions [computed, end) writable: adds blocks, and replaces a shared part-filled block
  /// (copy-on-write).
  Extension Extend(BlockTable& table, int32_t computed, int32_t end);

  /// Says that history[0, computed) has been written: its whole blocks become matchable, or are merged with
  /// equal ones.
  void Commit(BlockTable& table, std::span<const TokenId> history, int32_t computed);

  /// Under a window: gives back the blocks that no position from `computed` on sees; the last one stays.
  /// Returns how many entries have become null.
  int32_t FreeBehind(BlockTable& table, int32_t computed);
  /// Under a window: blocks that a sequence holds at most when it computes so many tokens in a step; else no
  /// bound.
  int32_t BlocksHeldAtMost(int32_t tokens_per_step) const;

  /// A second table on the blocks of the first `computed` tokens.
  BlockTable Fork(const BlockTable& table, int32_t computed);

  /// Gives all blocks back, last first; matchable ones are kept as the table's retention says. Of the pool at
  /// most half may be pinned, first blocks first; the others are kHigh. A table that holds nothing any more:
  /// counted as a double free, no effect.
  void Release(BlockTable& table);
  /// Drops one reference per entry, in order; null entries are skipped, entries without reference are counted
  /// double frees.
  void FreeBlocks(std::span<const BlockId> blocks);

  /// Turns up to n cached blocks into free ones, least recently used leaves first, none that is pinned;
  /// returns how many.
  int32_t Evict(int32_t n);
  /// Forgets every prefix. Running tables keep their blocks; these are no longer matchable.
  void Clear();
  /// A step begins, and the copies handed out before have been made. The time is what deadlines are measured
  /// by.
  void AdvanceTo(Instant now);
  /// Lets pinned blocks be evicted like others; returns how many there were.
  int32_t Unpin() { return queue_.Unpin(); }

  int32_t block_size() const { return block_size_; }
  int32_t total_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t cached_blocks() const { return queue_.size(); }
  int32_t used_blocks() const { return total_blocks() - free_blocks() - cached_blocks(); }
  /// What an allocation can take: free + cached, pinned ones excepted.
  int32_t available_blocks() const { return free_blocks() + queue_.evictable(); }
  int32_t tier_blocks() const { return tier_.size(); }
  int32_t pinned_blocks() const { return queue_.pinned(); }
  int32_t window() const { return window_; }
  int32_t reference_count(BlockId block) const { return blocks_[block.value].references; }
  int32_t BlocksFor(int32_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  const BlockManagerStats& stats() const { return stats_; }

  CacheEventLog& events() { return events_; }
  const CacheEventLog& events() const { return events_; }
  /// Every matchable block as a stored event, parents (where they are there) before children: the state
  /// before event next_sequence().
  std::vector<CacheEvent> Snapshot() const;

  /// Empty when all invariants hold, else the first that does not. O(blocks). With `tables`: all tables that
  /// are held; then reference counts are checked against them.
  std::string CheckIntegrity(std::span<const BlockTable* const> tables = {}) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t references = 0;
    int32_t parent = kNone;  // the block before it when matchable; kNone: the root, or a window is in use
    uint64_t serial = 0;     // of its registration; 0: not matchable
    uint64_t parent_serial = 0;
    BlockHash hash;
    BlockHash parent_hash;
    uint64_t check = 0;  // the keyed chain, under a window or with a tier
    CacheRoot root;
    int32_t depth = 0;  // blocks before it
  };
  /// Blocks [first, first + matched.size()) of a history are in the cache and all that is seen of it.
  struct Prefix {
    int32_t first = 0;
    std::vector<int32_t> blocks;
    bool collided = false;  // it ended at a block that has the hash but is another

    int32_t end() const { return first + static_cast<int32_t>(blocks.size()); }
  };

  std::span<const TokenId> Slice(std::span<const TokenId> tokens, int32_t index) const;
  std::span<const TokenId> StoredTokens(int32_t block) const;
  void HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const;
  struct Lookup {
    int32_t block = kNone;     // the matchable block that equals the one looked for
    int32_t collided = kNone;  // the block that has its hash but is another
  };
  Lookup Find(const BlockTable& table, std::span<const TokenId> tokens, int32_t index, int32_t parent) const;
  void FindPrefix(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens,
                  Prefix& prefix) const;
  void FindPrefixFromRoot(BlockTable& table, std::span<const TokenId> tokens, int32_t limit,
                          Prefix& prefix) const;
  void FindPrefixInWindow(BlockTable& table, std::span<const TokenId> tokens, int32_t limit,
                          Prefix& prefix) const;
  int32_t FirstSeenBlock(int32_t position) const;
  void CountAdmission(const AdmitRequest& request, int32_t cached, bool collided);
  void Announce(BlockTable& table, std::span<const TokenId> tokens);
  void Withdraw(BlockTable& table, int32_t end);
  void Keep(std::span<const BlockId> blocks, const CacheRetention& retention);
  bool IsOrphan(int32_t block) const;
  int32_t Take();
  void Reference(int32_t block);
  void Dereference(int32_t block);
  void CommitBlock(BlockTable& table, std::span<const TokenId> history, int32_t index);
  void Merge(BlockTable& table, int32_t index, int32_t equal);
  void DropOrphan(int32_t block);
  void Register(const BlockTable& table, std::span<const TokenId> history, int32_t index, int32_t parent);
  void Unregister(int32_t block);
  bool Keyed() const { return window_ > 0 || tier_.enabled(); }
  StoredBlock Describe(int32_t block) const;
  int32_t SlotOf(const BlockTable& table, std::span<const TokenId> tokens, int32_t index) const;
  int32_t BlocksInTier(BlockTable& table, std::span<const TokenId> tokens, int32_t first,
                       int32_t max_tokens) const;
  void TouchInTier(const BlockTable& table, std::span<const TokenId> tokens, int32_t first, int32_t blocks);
  void LoadFromTier(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks);
  void SaveToTier(int32_t block);
  std::string CheckBlocks() const;
  std::string CheckTables(std::span<const BlockTable* const> tables) const;

  int32_t block_size_;
  int32_t window_;
  uint64_t key_;
  bool prefix_caching_;
  BlockManagerOptions::ChainFunction chain_;
  std::vector<Block> blocks_;
  std::vector<TokenId>
      stored_tokens_;          // block b: [b * block_size, (b + 1) * block_size), valid while matchable
  std::vector<int32_t> free_;  // a stack
  absl::flat_hash_map<BlockHash, int32_t> index_;      // look-up only
  absl::flat_hash_map<BlockHash, int32_t> announced_;  // tables that are computing such a block
  EvictionQueue queue_;
  HostTier tier_;
  std::vector<BlockId> copying_;  // blocks of copies that this step will make
  Instant now_;
  uint64_t next_serial_ = 1;
  BlockManagerStats stats_;
  CacheEventLog events_;
  Prefix found_;  // scratch of Admit
};

}  // namespace kvring::replica
