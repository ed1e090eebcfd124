// Small builders for block manager tests.
#pragma once

#include <numeric>
#include <vector>

#include "replica/kv/block_manager.h"

namespace kvring::replica {

inline std::vector<TokenId> Tokens(int32_t first, int32_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline BlockManager MakeManager(int32_t num_blocks, int32_t block_size,
                                BlockManagerOptions::ChainFunction chain = nullptr) {
  return BlockManager({.num_blocks = num_blocks, .block_size = block_size, .chain = chain});
}

/// Admits a prompt as a sampler does: all but its last token may come from the cache.
inline std::optional<int32_t> AdmitPrompt(BlockManager& manager, BlockTable& table,
                                          const std::vector<TokenId>& tokens) {
  return manager.Admit(table,
                       {.tokens = tokens, .max_cached_tokens = static_cast<int32_t>(tokens.size()) - 1});
}

/// Admits, computes and commits everything.
inline BlockTable Computed(BlockManager& manager, const std::vector<TokenId>& tokens, CacheRoot root = {}) {
  BlockTable table{.root = root};
  AdmitPrompt(manager, table, tokens);
  manager.Commit(table, tokens, static_cast<int32_t>(tokens.size()));
  return table;
}

/// Leaves the prompt's whole blocks in the cache.
inline void Warm(BlockManager& manager, const std::vector<TokenId>& tokens, CacheRoot root = {}) {
  BlockTable table = Computed(manager, tokens, root);
  manager.Release(table);
}

/// Cached tokens that a fresh request for the prompt would get.
inline int32_t Hits(const BlockManager& manager, const std::vector<TokenId>& tokens, CacheRoot root = {}) {
  BlockTable table{.root = root};
  return manager.Match(table, tokens, static_cast<int32_t>(tokens.size()) - 1);
}

}  // namespace kvring::replica
