// SegmentCache: remembers the tokens of recent pieces of prompt text, least recently used out first, bounded
// in bytes. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"

namespace kvring::replica {

class SegmentCache {
 public:
  explicit SegmentCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Appends the tokens of `text` to `out` if they are known.
  bool Lookup(std::string_view text, std::vector<TokenId>& out);
  void Insert(std::string_view text, std::vector<TokenId> tokens);

  uint64_t hits() const;
  uint64_t misses() const;

 private:
  struct Entry {
    std::string text;
    std::vector<TokenId> tokens;
    size_t bytes() const { return text.size() + tokens.size() * sizeof(TokenId) + 128; }
  };

  const size_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recent first
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> by_hash_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvring::replica
