// InfiniteCache: what one cache that never forgets would have held, by the engine's rule: whole blocks from
// position zero, never the last token of a prompt. Its share of prompt tokens is the ceiling of any fleet
// with that block size. Pure.
#pragma once

#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "common/block_hash.h"
#include "common/ids.h"
#include "router/fleet/prompt_key.h"

namespace kvring::sim {

class InfiniteCache {
 public:
  explicit InfiniteCache(int32_t block_tokens) : block_tokens_(static_cast<size_t>(block_tokens)) {}

  /// Tokens of the prompt that are held already; afterwards all its whole blocks are. `key`: of the prompt.
  int64_t Look(std::span<const TokenId> prompt, const router::PromptKey& key);
  /// A history that was computed, with its answer.
  void Add(std::span<const TokenId> history);

 private:
  std::vector<BlockHash> ChainOf(std::span<const TokenId> prompt, const router::PromptKey& key) const;

  size_t block_tokens_;
  absl::flat_hash_set<BlockHash> blocks_;
};

}  // namespace kvring::sim
