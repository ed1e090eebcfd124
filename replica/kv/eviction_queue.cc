#include "replica/kv/eviction_queue.h"

#include <algorithm>

#include "common/check.h"

namespace kvring::replica {

void EvictionQueue::SetClass(Node& node, Retention retention) {
  pinned_ += (retention == Retention::kPinned ? 1 : 0) - (node.retention == Retention::kPinned ? 1 : 0);
  node.retention = retention;
}

void EvictionQueue::Raise(int32_t block, Retention retention, Instant until) {
  Node& node = nodes_[block];
  KVRING_CHECK(!node.queued);
  SetClass(node, std::max(node.retention, retention));
  if (retention >= Retention::kHigh) node.until = std::max(node.until, until);
}

void EvictionQueue::Forget(int32_t block) {
  Node& node = nodes_[block];
  KVRING_CHECK(!node.queued);
  SetClass(node, Retention::kLow);
  node.until = {};
}

void EvictionQueue::Push(int32_t block, Instant now) {
  Node& node = nodes_[block];
  if (Lasts(node) && node.until <= now) SetClass(node, Retention::kNormal);
  node.pushed = next_push_++;
  Link(block);
}

void EvictionQueue::Remove(int32_t block) { Unlink(block); }

int32_t EvictionQueue::Victim() const {
  for (size_t c = 0; c < static_cast<size_t>(Retention::kPinned); ++c) {
    if (lists_[c].oldest != kNone) return lists_[c].oldest;
  }
  return kNone;
}

void EvictionQueue::Expire(Instant now) {
  while (!deadlines_.empty() && deadlines_.begin()->until <= now) {
    const int32_t block = deadlines_.begin()->block;
    Unlink(block);
    Push(block, now);
  }
}

int32_t EvictionQueue::Unpin() {
  const int32_t pinned = pinned_;
  List& list = lists_[static_cast<size_t>(Retention::kPinned)];
  while (list.oldest != kNone) {
    const int32_t block = list.oldest;
    Unlink(block);
    SetClass(nodes_[block], Retention::kHigh);
    nodes_[block].pushed = next_push_++;
    Link(block);
  }
  for (Node& node : nodes_) {  // those in use
    if (node.retention == Retention::kPinned) SetClass(node, Retention::kHigh);
  }
  return pinned;
}

void EvictionQueue::Link(int32_t block) {
  Node& node = nodes_[block];
  KVRING_CHECK(!node.queued);
  List& list = lists_[static_cast<size_t>(node.retention)];
  node.queued = true;
  node.newer = kNone;
  node.older = list.newest;
  (list.newest == kNone ? list.oldest : nodes_[list.newest].newer) = block;
  list.newest = block;
  ++list.size;
  ++size_;
  if (Lasts(node)) deadlines_.insert({node.until, node.pushed, block});
}

void EvictionQueue::Unlink(int32_t block) {
  Node& node = nodes_[block];
  KVRING_CHECK(node.queued);
  List& list = lists_[static_cast<size_t>(node.retention)];
  (node.older == kNone ? list.oldest : nodes_[node.older].newer) = node.newer;
  (node.newer == kNone ? list.newest : nodes_[node.newer].older) = node.older;
  node.queued = false;
  --list.size;
  --size_;
  if (Lasts(node)) deadlines_.erase({node.until, node.pushed, block});
}

const char* EvictionQueue::CheckIntegrity() const {
  int32_t queued = 0;
  size_t lasting = 0;
  for (size_t c = 0; c < kRetentionClasses; ++c) {
    int32_t length = 0;
    int32_t older = kNone;
    for (int32_t block = lists_[c].oldest; block != kNone; older = block, block = nodes_[block].newer) {
      const Node& node = nodes_[block];
      if (++length > lists_[c].size) return "an eviction list is longer than its count";
      if (node.older != older || !node.queued) return "a broken link in an eviction list";
      if (static_cast<size_t>(node.retention) != c) return "a block in the list of another class";
      if (Lasts(node) && !deadlines_.contains({node.until, node.pushed, block})) return "a lost deadline";
      lasting += Lasts(node) ? 1 : 0;
    }
    if (older != lists_[c].newest || length != lists_[c].size) return "an eviction list misses blocks";
    queued += length;
  }
  const auto pinned = std::ranges::count(nodes_, Retention::kPinned, &Node::retention);
  if (queued != size_ || pinned != pinned_) return "wrong counts of the eviction queue";
  return lasting == deadlines_.size() ? "" : "deadlines of blocks that are not queued";
}

}  // namespace kvring::replica
