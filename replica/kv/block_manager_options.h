// BlockManagerOptions: the pool that a BlockManager rules over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/block_hash.h"
#include "common/ids.h"
#include "replica/kv/host_tier.h"

namespace kvring::replica {

struct BlockManagerOptions {
  using ChainFunction = BlockHash (*)(BlockHash parent, std::span<const TokenId> block);

  int32_t num_blocks = 0;
  int32_t block_size = 16;
  int32_t window = 0;  // tokens that a position sees, itself included; 0: all
  uint64_t key = 0;    // of the keyed chain; the shell draws it at random
  bool prefix_caching = true;
  size_t event_capacity = 1 << 16;
  ChainFunction chain = nullptr;  // null: ChainNext of common/block_hash.h
  HostTierOptions tier;           // for window 0 only
};

}  // namespace kvring::replica
