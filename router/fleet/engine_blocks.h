// EngineBlocks: the token blocks that replicas themselves say they hold, from their sequenced cache events.
// Answers for prompts whose token ids are known, whoever put the blocks there: a text prompt on another
// router counts too. Per replica:
//   first batch     trusted from there on
//   repeat          a batch whose numbers were seen is ignored
//   gap             a missed removal would be a phantom: nothing of the replica is believed until the missing
//                   numbers come (a replay), or a batch that starts anew (BatchStart)
//   unknown parent  the same as a gap, from the very beginning; after kResumes such blocks are left out
//   another epoch   forgets all
// Bounded by `max_blocks` over all replicas: what does not fit is not learnt (a shorter match, never a wrong
// one). Pure; not thread-safe.
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

  EventsTaken Apply(uint32_t replica, const CacheEventBatch& batch);
  /// The replica left, or began another life. Its counts stay until the slot is another's (epoch 0).
  void Forget(uint32_t replica);
  bool any() const { return total_ > 0; }
  size_t size() const { return total_; }
  EventsView View(uint32_t replica) const;
  /// Tokens per block of what the replica tells; 0: it tells none, or nothing is believed.
  int32_t BlockTokens(uint32_t replica) const;

  /// The engine's own chain of a token prompt: blocks of `block_tokens` ids from the unsalted root.
  static std::vector<BlockHash> ChainOf(const PromptKey& prompt, int32_t block_tokens);
  /// Blocks from the chain's start that the replica holds; prefix closure makes it a binary search.
  size_t Depth(uint32_t replica, const std::vector<BlockHash>& chain) const;

 private:
  struct Held {
    absl::flat_hash_set<uint64_t> blocks;  // look-up only
    Epoch epoch;
    bool heard = false;  // of this life
    EventsState state = EventsState::kNone;
    uint64_t next_sequence = 0;
    int32_t block_tokens = 0;
    uint64_t gaps = 0;
    uint64_t repeats = 0;
  };
  EventsTaken Missing(Held& held, uint64_t wanted);
  bool Take(Held& held, const CacheEvent& event);
  void Clear(Held& held);

  size_t max_blocks_;
  size_t total_ = 0;
  std::vector<Held> held_;  // by slot
};

}  // namespace kvring::router
