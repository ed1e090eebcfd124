// BlockManagerStats: what the block manager has counted since it began. Tokens of queries and hits are
// counted once per request, at first admission; what preemption makes a sequence look up again is counted
// apart.
#pragma once

#include <cstdint>

namespace kvring::replica {

struct BlockManagerStats {
  uint64_t query_tokens = 0;           // prompt tokens, once per request, at first admission
  uint64_t hit_tokens = 0;             // of these, found
  uint64_t readmitted_tokens = 0;      // tokens of sequences admitted again after preemption
  uint64_t readmitted_hit_tokens = 0;  // of these, found
  uint64_t full_hits = 0;              // first admissions that found all they may take, at least a block
  uint64_t partial_hits = 0;           // that found some of it
  uint64_t misses = 0;                 // that found nothing
  uint64_t evictions = 0;
  uint64_t collisions = 0;           // equal hash, other tokens or another parent: treated as a miss
  uint64_t copies = 0;               // copy-on-write
  uint64_t last_block_copies = 0;    // CopyOfLastBlock
  uint64_t merged_blocks = 0;        // computed twice, kept once
  uint64_t double_frees = 0;         // a caller's bug; had no effect
  uint64_t tier_hit_tokens = 0;      // of the hits, loaded from the host tier
  uint64_t tier_damaged_blocks = 0;  // found there, but unreadable: computed again
  uint64_t pins_refused = 0;         // blocks kept as kHigh, since half of the pool is pinned already
};

}  // namespace kvring::replica
