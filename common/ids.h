// Strong integer ids: a replica's number never passes for a block's. Pure values, thread-compatible.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace kvring {

template <class Tag, class Rep>
struct StrongId {
  using rep = Rep;
  Rep value{};

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value);
  }
};

/// One token of a model's vocabulary, in [0, vocab_size).
using TokenId = int32_t;

/// A physical KV block of one replica's pool.
using BlockId = StrongId<struct BlockIdTag, int32_t>;
/// One running sequence (one choice of one request) inside an engine.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;
/// One request at one router or one replica; unique for the life of that process, never taken from a client.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
/// A replica as one router knows it; never reused within a router's life, so a late report cannot hit a
/// successor.
using ReplicaId = StrongId<struct ReplicaIdTag, uint32_t>;
/// One life of a replica process: random 64 bits drawn at its start. A new epoch means an empty cache.
using Epoch = StrongId<struct EpochTag, uint64_t>;
/// Hash of a session's name; equal names give equal keys on every router.
using SessionKey = StrongId<struct SessionKeyTag, uint64_t>;

}  // namespace kvring

template <class Tag, class Rep>
struct std::hash<kvring::StrongId<Tag, Rep>> {
  size_t operator()(kvring::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
