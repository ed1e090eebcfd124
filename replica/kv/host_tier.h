// HostTier: which evicted blocks are kept beside the KV pool, in a bounded number of slots, the least
// recently used given up first. A block is found by what it is (StoredBlock), never by its hash alone. It
// stays when it is loaded, so that giving it up again costs no copy. O(1). Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "replica/kv/block_store.h"

namespace kvring::replica {

/// A slot that holds a block from before the process started.
struct RestoredSlot {
  int32_t slot = 0;
  StoredBlock block;
};

struct HostTierOptions {
  int32_t slots = 0;            // 0: no tier
  BlockStore* store = nullptr;  // null: none moves bytes (a simulation)
  std::vector<RestoredSlot> restored;
};

class HostTier {
 public:
  static constexpr int32_t kNone = -1;

  explicit HostTier(const HostTierOptions& options);

  bool enabled() const { return !slots_.empty(); }
  int32_t size() const { return static_cast<int32_t>(index_.size()); }
  bool Holds(BlockHash hash) const { return index_.contains(hash); }
  /// The slot that holds exactly this; kNone.
  int32_t Find(const StoredBlock& block) const;
  /// As the most recently used.
  void Touch(int32_t slot);

  /// Saves a block of the pool, or touches the slot that holds it already. Returns what was given up for it.
  std::optional<StoredBlock> Put(BlockId block, const StoredBlock& what);
  /// Loads a slot into a block of the pool. False: it was damaged, and is empty now.
  bool Get(int32_t slot, BlockId block);
  void Clear();

  /// Everything held, in no order.
  std::vector<const StoredBlock*> Contents() const;
  /// Empty when lists, index and slots agree, else what does not. O(slots).
  const char* CheckIntegrity() const;

 private:
  struct Slot {
    StoredBlock block;
    bool used = false;
    int32_t newer = kNone;
    int32_t older = kNone;
  };

  void Link(int32_t slot);
  void Unlink(int32_t slot);
  int32_t EmptySlot(std::optional<StoredBlock>& given_up);
  void Drop(int32_t slot);

  BlockStore* store_;
  std::vector<Slot> slots_;
  std::vector<int32_t> empty_;
  absl::flat_hash_map<BlockHash, int32_t> index_;  // look-up only
  int32_t newest_ = kNone;
  int32_t oldest_ = kNone;
};

}  // namespace kvring::replica
