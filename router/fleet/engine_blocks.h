// EngineBlocks: the token blocks that replicas themselves say they hold, from their sequenced cache events.
// Answers for prompts whose token ids are known, whoever put the blocks there: a text prompt on another
// router counts too. A replica is trusted from its first batch on; a gap in its sequence or another epoch
// forgets it, since a missed removal would be a phantom. Bounded by `max_blocks` over all replicas: what does
// not fit is not learnt (a shorter match, never a wrong one). Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "router/fleet/prompt_key.h"
#include "router/fleet/replica_types.h"

namespace kvring::router {

class EngineBlocks {
 public:
  explicit EngineBlocks(size_t max_blocks) : max_blocks_(max_blocks) {}

  void Apply(uint32_t replica, const CacheEventBatch& batch);
  void Forget(uint32_t replica);
  bool any() const { return total_ > 0; }
  size_t size() const { return total_; }

  /// The engine's own chain of a token prompt: blocks of `block_tokens` ids from the unsalted root.
  static std::vector<BlockHash> ChainOf(const PromptKey& prompt, int32_t block_tokens);
  /// Blocks from the chain's start that the replica holds; prefix closure makes it a binary search.
  size_t Depth(uint32_t replica, const std::vector<BlockHash>& chain) const;

 private:
  struct Held {
    absl::flat_hash_set<uint64_t> blocks;  // look-up only
    Epoch epoch;
    uint64_t next_sequence = 0;
  };
  size_t max_blocks_;
  size_t total_ = 0;
  std::vector<Held> held_;  // by slot
};

}  // namespace kvring::router
