// CacheEvents: the sequenced journal of what the prefix cache holds. Event k of a replica's life has sequence
// number k, counted from 1; a router that sees `first_sequence` jump has missed something and asks for a
// snapshot. The buffer is bounded: when nobody drains it, everything in it is dropped at once and counted,
// and the next batch starts after the gap. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/block_hash.h"

namespace kvring::replica {

struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  BlockHash hash;    // zero for kCleared
  BlockHash parent;  // hash of the block before it, or the chain root
  friend bool operator==(const CacheEvent&, const CacheEvent&) = default;
};

/// Events first_sequence, first_sequence + 1, …
struct CacheEventBatch {
  uint64_t first_sequence = 1;
  std::vector<CacheEvent> events;
};

class CacheEventLog {
 public:
  explicit CacheEventLog(size_t capacity) : capacity_(capacity) {}

  void Append(const CacheEvent& event) {
    if (pending_.size() >= capacity_) {
      dropped_ += pending_.size();
      first_sequence_ += pending_.size();
      pending_.clear();
    }
    pending_.push_back(event);
  }

  CacheEventBatch Take() {
    CacheEventBatch batch{first_sequence_, std::exchange(pending_, {})};
    first_sequence_ += batch.events.size();
    return batch;
  }

  /// The number that the next event will get.
  uint64_t next_sequence() const { return first_sequence_ + pending_.size(); }
  /// Events that were dropped because nobody took them.
  uint64_t dropped() const { return dropped_; }
  bool empty() const { return pending_.empty(); }

 private:
  size_t capacity_;
  uint64_t first_sequence_ = 1;
  uint64_t dropped_ = 0;
  std::vector<CacheEvent> pending_;
};

}  // namespace kvring::replica
