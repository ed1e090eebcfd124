// BlockStore: slots of one KV block each beside the pool, in host memory or in a file: where evicted blocks
// go and come back from. HostTier decides what lies in which slot; the store moves the bytes, between steps
// and on the engine's thread: when Save or Load returns, the block may be written or read.
#pragma once

#include <cstdint>
#include <vector>

#include "common/block_hash.h"
#include "common/ids.h"
#include "replica/kv/block_table.h"

namespace kvring::replica {

/// What a block holds, wherever it lies: its place in a chain, and its own tokens.
struct StoredBlock {
  BlockHash hash;
  BlockHash parent;    // hash of the block before it, or the chain's root
  uint64_t check = 0;  // of the keyed chain
  CacheRoot root;
  int32_t depth = 0;  // blocks before it
  std::vector<TokenId> tokens;
  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

class BlockStore {
 public:
  virtual ~BlockStore() = default;
  /// Copies a block of the pool into a slot, over what was there.
  virtual void Save(BlockId block, int32_t slot, const StoredBlock& what) = 0;
  /// Copies a slot into a block of the pool. False when the slot cannot be read, is damaged or holds another
  /// block than `what`; the block of the pool then holds anything.
  virtual bool Load(int32_t slot, const StoredBlock& what, BlockId block) = 0;
  /// The slot is not to come back when the process starts again.
  virtual void Forget(int32_t slot) = 0;
};

}  // namespace kvring::replica
