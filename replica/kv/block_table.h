// BlockTable: the blocks of one sequence, and what its request says of them: whose cache they belong to
// (CacheRoot) and how dear they are once cached. Owned by the caller, changed by the block manager only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/block_hash.h"
#include "common/ids.h"
#include "common/instant.h"
#include "replica/kv/eviction_queue.h"

namespace kvring::replica {

/// An entry of a table whose block has been given back (the window has passed it).
inline constexpr BlockId kNullBlock{-1};

/// The first `tokens` slots of `from` are copied to `to` before anything else of a step, in the order of its
/// list (a block may be the target of one copy and, given back in between, of a later one).
struct BlockCopy {
  BlockId from;
  BlockId to;
  int32_t tokens = 0;
};

/// Where a chain begins. Two roots are equal only when hash and check are, so that two salts meet by chance
/// with 2^-128.
struct CacheRoot {
  BlockHash hash;
  uint64_t check = 0;
  friend bool operator==(const CacheRoot&, const CacheRoot&) = default;
};
CacheRoot MakeCacheRoot(const CacheIdentity& identity);

/// kHigh and kPinned hold for `ttl` after the last use, then the block is a normal one.
struct CacheRetention {
  Retention retention = Retention::kNormal;
  Duration ttl{};
};

/// Bound to one token history and one root. Chain hashes are kept over Release, so that a sequence which
/// comes back does not hash again.
struct BlockTable {
  CacheRoot root;
  CacheRetention retention;
  std::vector<BlockId> blocks;
  std::vector<BlockHash> hashes;  // of the history's whole blocks, as far as computed
  std::vector<uint64_t> checks;   // the same of the keyed chain; under a window only
  int32_t committed_blocks = 0;   // whole blocks that Commit has dealt with
  int32_t announced_blocks = 0;   // whole blocks [committed, announced) are being computed for all to see
  int32_t null_blocks = 0;        // leading entries that the window has passed
  bool held = false;              // between Admit or Fork and Release

  /// Of block `index`: the hash of the one before it, or the chain's root.
  BlockHash parent_hash(int32_t index) const { return index == 0 ? root.hash : hashes[index - 1]; }
};

}  // namespace kvring::replica
