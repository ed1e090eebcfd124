// The block hash chain: h_i = Mix(h_{i-1}, XXH3(block_i)), rooted in what must not be shared: model, adapter,
// tenant salt. Equal chains mean equal prefixes (up to 64-bit collisions: the engine compares tokens on a
// hit, the router's answer is only a prediction). The one implementation for router, engine, ledger,
// simulator and audit; golden vectors in its test. Values are the same on every machine of either byte order.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/ids.h"

namespace kvring {

struct BlockHash {
  uint64_t value = 0;
  friend constexpr auto operator<=>(BlockHash, BlockHash) = default;
  template <class H>
  friend H AbslHashValue(H h, BlockHash b) {
    return H::combine(std::move(h), b.value);
  }
};

/// What separates caches. An absent adapter or salt equals an empty one.
struct CacheIdentity {
  std::string_view model;
  std::string_view adapter;
  std::string_view salt;
};

BlockHash ChainRoot(const CacheIdentity& identity);
BlockHash ChainNext(BlockHash parent, std::string_view block);
BlockHash ChainNext(BlockHash parent, std::span<const TokenId> block);

/// A second chain, which only the holder of `key` can compute: beside the hash it makes an identity of 128
/// bits that no client can aim at. Never leaves the process.
uint64_t KeyedNext(uint64_t parent, std::span<const TokenId> block, uint64_t key);

/// Hashes of all whole blocks of `bytes`; a partial last block has none. block_bytes > 0.
std::vector<BlockHash> HashChain(BlockHash root, std::string_view bytes, size_t block_bytes);
/// The same over tokens. block_tokens > 0.
std::vector<BlockHash> HashChain(BlockHash root, std::span<const TokenId> tokens, size_t block_tokens);

/// The chain hash of a fixed prompt: router and replica compare it when they meet, and refuse each other if
/// they would hash differently (PFX-10).
uint64_t HashProbe();

/// Plain 64-bit hash of a name (session keys, ring members, tenant salts): XXH3 with seed 0.
uint64_t HashName(std::string_view name);

}  // namespace kvring
