// PromptKey: a prompt as the router compares it. Computed once per request, outside any lock, from the
// canonical bytes (common/canonical_prompt.h) or from token ids; everything after it works on hashes. Pure.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "common/block_hash.h"
#include "common/ids.h"

namespace kvring::router {

/// Bytes of canonical prompt per index block, about 64 tokens of English.
inline constexpr size_t kIndexBlockBytes = 256;
/// Tokens per index block where exact ids are known; 64 tokens are 256 bytes of ids, so both units share one
/// code path.
inline constexpr size_t kIndexBlockTokens = kIndexBlockBytes / sizeof(TokenId);

enum class PromptUnit { kBytes, kTokens };

struct PromptKey {
  PromptUnit unit = PromptUnit::kBytes;
  BlockHash root;
  std::vector<BlockHash> chain;  // one per whole index block
  std::string_view bytes;  // the canonical bytes, or the ids as little-endian 32-bit integers; the caller's
};

/// The two units never share a root: a byte chain and a token chain of the same prompt do not match each
/// other.
PromptKey MakePromptKey(const CacheIdentity& identity, std::string_view canonical_bytes);
PromptKey MakePromptKey(const CacheIdentity& identity, std::span<const TokenId> tokens);
/// The root that engines use for this prompt's identity.
BlockHash UnsaltedRoot(const PromptKey& prompt);

}  // namespace kvring::router
