#include "replica/model/segment_cache.h"

#include "common/block_hash.h"

namespace kvring::replica {

bool SegmentCache::Lookup(std::string_view text, std::vector<TokenId>& out) {
  const uint64_t hash = HashName(text);
  absl::MutexLock lock(&mutex_);
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end() || it->second->text != text) {
    ++misses_;
    return false;
  }
  ++hits_;
  entries_.splice(entries_.begin(), entries_, it->second);
  out.insert(out.end(), it->second->tokens.begin(), it->second->tokens.end());
  return true;
}

void SegmentCache::Insert(std::string_view text, std::vector<TokenId> tokens) {
  Entry entry{std::string(text), std::move(tokens)};
  if (entry.bytes() > max_bytes_) return;
  const uint64_t hash = HashName(text);
  absl::MutexLock lock(&mutex_);
  if (by_hash_.contains(hash)) return;  // another thread was first, or a collision: the older stays
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  by_hash_[hash] = entries_.begin();
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes();
    by_hash_.erase(HashName(entries_.back().text));
    entries_.pop_back();
  }
}

uint64_t SegmentCache::hits() const {
  absl::MutexLock lock(&mutex_);
  return hits_;
}

uint64_t SegmentCache::misses() const {
  absl::MutexLock lock(&mutex_);
  return misses_;
}

}  // namespace kvring::replica
