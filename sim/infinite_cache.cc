#include "sim/infinite_cache.h"

#include <algorithm>
#include <vector>

namespace kvring::sim {

int64_t InfiniteCache::Look(std::span<const TokenId> prompt) {
  const std::vector<BlockHash> chain = HashChain({}, prompt, block_tokens_);
  const auto known =
      std::find_if_not(chain.begin(), chain.end(), [&](BlockHash b) { return blocks_.contains(b); });
  const auto usable = prompt.empty() ? 0 : static_cast<std::ptrdiff_t>((prompt.size() - 1) / block_tokens_);
  blocks_.insert(known, chain.end());
  return std::min(known - chain.begin(), usable) * static_cast<int64_t>(block_tokens_);
}

void InfiniteCache::Add(std::span<const TokenId> history) {
  for (BlockHash block : HashChain({}, history, block_tokens_)) blocks_.insert(block);
}

}  // namespace kvring::sim
