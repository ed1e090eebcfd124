#include "sim/infinite_cache.h"

#include <algorithm>

#include "sim/trace.h"

namespace kvring::sim {

// Where a block is some whole index blocks, the key has its hash: a chain's hash stands for all before it.
std::vector<BlockHash> InfiniteCache::ChainOf(std::span<const TokenId> prompt,
                                              const router::PromptKey& key) const {
  if (block_tokens_ % router::kIndexBlockTokens != 0) return HashChain(key.root, prompt, block_tokens_);
  const size_t stride = block_tokens_ / router::kIndexBlockTokens;
  std::vector<BlockHash> chain(key.chain.size() / stride);
  for (size_t i = 0; i < chain.size(); ++i) chain[i] = key.chain[(i + 1) * stride - 1];
  return chain;
}

int64_t InfiniteCache::Look(std::span<const TokenId> prompt, const router::PromptKey& key) {
  const std::vector<BlockHash> chain = ChainOf(prompt, key);
  const auto known =
      std::find_if_not(chain.begin(), chain.end(), [&](BlockHash b) { return blocks_.contains(b); });
  const auto usable = prompt.empty() ? 0 : static_cast<std::ptrdiff_t>((prompt.size() - 1) / block_tokens_);
  blocks_.insert(known, chain.end());
  return std::min(known - chain.begin(), usable) * static_cast<int64_t>(block_tokens_);
}

void InfiniteCache::Add(std::span<const TokenId> history) {
  const router::PromptKey key = router::MakePromptKey(kSimIdentity, history);
  for (BlockHash block : ChainOf(history, key)) blocks_.insert(block);
}

}  // namespace kvring::sim
