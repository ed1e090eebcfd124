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
// its ancestors, and releasing a table last block first keeps the one LRU list in leaf-first order: eviction
// takes its head, O(1). An operation that lacks room changes nothing. Copy-on-write and prefix sharing as in
// PagedAttention (Kwon et al. 2023, section 4). Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/block_hash.h"
#include "common/ids.h"
#include "replica/kv/cache_events.h"

namespace kvring::replica {

/// An entry of a table whose block has been given back (a window has passed it).
inline constexpr BlockId kNullBlock{-1};

/// Where a chain begins. Two roots are equal only when hash and check are, so that two salts meet by chance
/// with 2^-128.
struct CacheRoot {
  BlockHash hash;
  uint64_t check = 0;
  friend bool operator==(const CacheRoot&, const CacheRoot&) = default;
};
CacheRoot MakeCacheRoot(const CacheIdentity& identity);

/// The blocks of one sequence. Owned by the caller, changed by the manager only; bound to one token history
/// and one root. Chain hashes are kept over Release, so that a sequence which comes back does not hash again.
struct BlockTable {
  CacheRoot root;
  std::vector<BlockId> blocks;
  std::vector<BlockHash> hashes;  // of the history's whole blocks, as far as computed
  int32_t committed_blocks = 0;   // whole blocks that Commit has dealt with
  bool held = false;              // between Admit or Fork and Release
};

struct BlockManagerOptions {
  using ChainFunction = BlockHash (*)(BlockHash parent, std::span<const TokenId> block);

  int32_t num_blocks = 0;
  int32_t block_size = 16;
  bool prefix_caching = true;
  size_t event_capacity = 1 << 16;
  ChainFunction chain = nullptr;  // null: ChainNext of common/block_hash.h
};

struct BlockManagerStats {
  uint64_t query_tokens = 0;           // prompt tokens, once per request, at first admission
  uint64_t hit_tokens = 0;             // of these, found
  uint64_t readmitted_tokens = 0;      // tokens of sequences admitted again after preemption
  uint64_t readmitted_hit_tokens = 0;  // of these, found
  uint64_t evictions = 0;
  uint64_t collisions = 0;     // equal hash, other tokens or another parent: treated as a miss
  uint64_t copies = 0;         // copy-on-write
  uint64_t merged_blocks = 0;  // computed twice, kept once
  uint64_t double_frees = 0;   // a caller's bug; had no effect
};

class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  struct AdmitRequest {
    std::span<const TokenId> tokens;  // the whole history: prompt, and output of a sequence that comes back
    int32_t max_cached_tokens =
        0;  // at most this many are taken from the cache (history - 1 at most for a sampler)
    int32_t headroom_blocks = 0;  // refuse unless that many blocks stay available
    bool readmission = false;     // counted apart: see BlockManagerStats
  };
  /// Fills an empty table with the longest cached prefix and fresh blocks for the rest of `tokens`. Returns
  /// the cached tokens (whole blocks), or nullopt when there is no room; then nothing has changed and nothing
  /// was counted.
  std::optional<int32_t> Admit(BlockTable& table, const AdmitRequest& request);

  /// Tokens that Admit would find now. Counts and changes nothing (beyond the table's kept hashes).
  int32_t Match(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens) const;

  struct Extension {
    bool ok = false;
    BlockId copy_from = kNullBlock;  // when set: copy `copy_tokens` slots from here …
    BlockId copy_to = kNullBlock;    // … to here before anything is written
    int32_t copy_tokens = 0;
  };
  /// Makes positions [computed, end) writable: adds blocks, and replaces a shared part-filled block
  /// (copy-on-write).
  Extension Extend(BlockTable& table, int32_t computed, int32_t end);

  /// Says that history[0, computed) has been written: its whole blocks become matchable, or are merged with
  /// equal ones.
  void Commit(BlockTable& table, std::span<const TokenId> history, int32_t computed);

  /// A second table on the blocks of the first `computed` tokens.
  BlockTable Fork(const BlockTable& table, int32_t computed);

  /// Gives all blocks back, last first. A table that holds nothing any more: counted as a double free, no
  /// effect.
  void Release(BlockTable& table);
  /// Drops one reference per entry, in order; null entries are skipped, entries without reference are counted
  /// double frees.
  void FreeBlocks(std::span<const BlockId> blocks);

  /// Turns up to n cached blocks into free ones, least recently used leaves first; returns how many.
  int32_t Evict(int32_t n);
  /// Forgets every prefix. Running tables keep their blocks; these are no longer matchable.
  void Clear();

  int32_t block_size() const { return block_size_; }
  int32_t total_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t cached_blocks() const { return cached_count_; }
  int32_t used_blocks() const { return total_blocks() - free_blocks() - cached_blocks(); }
  /// What an allocation can take: free + cached.
  int32_t available_blocks() const { return free_blocks() + cached_blocks(); }
  int32_t reference_count(BlockId block) const { return blocks_[block.value].references; }
  int32_t BlocksFor(int32_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }
  const BlockManagerStats& stats() const { return stats_; }

  CacheEventLog& events() { return events_; }
  const CacheEventLog& events() const { return events_; }
  /// Every matchable block as a stored event, parents before children: the state after event next_sequence()
  /// - 1.
  std::vector<CacheEvent> Snapshot() const;

  /// Empty when all invariants hold, else the first that does not. O(blocks). With `tables`: all tables that
  /// are held; then reference counts are checked against them.
  std::string CheckIntegrity(std::span<const BlockTable* const> tables = {}) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t references = 0;
    int32_t newer = kNone;  // LRU list links; meaningful while cached
    int32_t older = kNone;
    int32_t parent = kNone;  // the block before it when matchable; kNone: the root
    uint64_t serial = 0;     // of its registration; 0: not matchable
    uint64_t parent_serial = 0;
    BlockHash hash;
    BlockHash parent_hash;
    CacheRoot root;
  };

  std::span<const TokenId> Slice(std::span<const TokenId> tokens, int32_t index) const;
  std::span<const TokenId> StoredTokens(int32_t block) const;
  void HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const;
  struct Lookup {
    int32_t block = kNone;     // the matchable block that equals the one looked for
    int32_t collided = kNone;  // the block that has its hash but is another
  };
  Lookup Find(const BlockTable& table, std::span<const TokenId> tokens, int32_t index, int32_t parent) const;
  /// Appends the longest cached prefix to `matched`; true when it ended at a collision.
  bool MatchBlocks(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens,
                   std::vector<int32_t>& matched) const;
  bool IsOrphan(int32_t block) const;
  int32_t Take();
  void Reference(int32_t block);
  void Dereference(int32_t block);
  void CommitBlock(BlockTable& table, std::span<const TokenId> history, int32_t index);
  void Merge(BlockTable& table, int32_t index, int32_t equal);
  void DropOrphan(int32_t block);
  void Register(const BlockTable& table, std::span<const TokenId> history, int32_t index, int32_t parent);
  void Unregister(int32_t block);
  void PushNewest(int32_t block);
  void Unlink(int32_t block);
  std::string CheckBlocks() const;
  std::string CheckLru() const;
  std::string CheckTables(std::span<const BlockTable* const> tables) const;

  int32_t block_size_;
  bool prefix_caching_;
  BlockManagerOptions::ChainFunction chain_;
  std::vector<Block> blocks_;
  std::vector<TokenId>
      stored_tokens_;          // block b: [b * block_size, (b + 1) * block_size), valid while matchable
  std::vector<int32_t> free_;  // a stack
  absl::flat_hash_map<BlockHash, int32_t> index_;  // look-up only
  int32_t newest_ = kNone;
  int32_t oldest_ = kNone;
  int32_t cached_count_ = 0;
  uint64_t next_serial_ = 1;
  BlockManagerStats stats_;
  CacheEventLog events_;
  std::vector<int32_t> matched_;  // scratch of Admit
};

}  // namespace kvring::replica
