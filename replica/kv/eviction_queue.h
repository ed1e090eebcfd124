// EvictionQueue: the order in which cached blocks are given up: classes from low to high, in each the least
// recently used first. All operations are O(1), except that blocks with a deadline cost O(log of them). A
// block of class kHigh or kPinned falls to kNormal, as the most recently used there, once its deadline has
// passed; kPinned ones are never victims. The class and the deadline of a block stay while it is out of the
// queue (in use), and only rise until it is forgotten. Pushing children before parents, and raising a parent
// whenever a child is raised, keeps victims leaf-first. Pure; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/instant.h"

namespace kvring::replica {

/// How dear a cached block is. In order: a lower one is given up first.
enum class Retention : uint8_t { kLow, kNormal, kHigh, kPinned };
inline constexpr size_t kRetentionClasses = 4;

class EvictionQueue {
 public:
  static constexpr int32_t kNone = -1;

  explicit EvictionQueue(int32_t num_blocks) : nodes_(num_blocks) {}

  /// At least this class, at least until then (kHigh and kPinned only).
  void Raise(int32_t block, Retention retention, Instant until);
  /// The block is about to hold something else. It is not in the queue.
  void Forget(int32_t block);

  /// As the most recently used of its class. It is not in the queue.
  void Push(int32_t block, Instant now);
  void Remove(int32_t block);
  /// The next victim; kNone when every block is pinned, or there is none.
  int32_t Victim() const;

  /// Lets blocks in the queue whose deadline has passed fall to kNormal, in order of deadline, then of Push.
  void Expire(Instant now);
  /// Lets all pinned blocks fall to kHigh, with their deadlines; returns how many.
  int32_t Unpin();

  int32_t size() const { return size_; }
  int32_t evictable() const { return size_ - lists_[static_cast<size_t>(Retention::kPinned)].size; }
  /// Blocks of class kPinned, in the queue or in use.
  int32_t pinned() const { return pinned_; }
  Retention ClassOf(int32_t block) const { return nodes_[block].retention; }
  bool IsPinned(int32_t block) const { return nodes_[block].retention == Retention::kPinned; }

  /// Empty when lists, links, counts and deadlines agree, else what does not. O(blocks).
  const char* CheckIntegrity() const;

 private:
  struct Node {
    int32_t newer = kNone;
    int32_t older = kNone;
    Retention retention = Retention::kLow;
    bool queued = false;
    uint64_t pushed = 0;  // order among equal deadlines
    Instant until;
  };
  struct List {
    int32_t newest = kNone;
    int32_t oldest = kNone;
    int32_t size = 0;
  };
  struct Deadline {
    Instant until;
    uint64_t pushed;
    int32_t block;
    friend auto operator<=>(const Deadline&, const Deadline&) = default;
  };

  static bool Lasts(const Node& node) { return node.retention >= Retention::kHigh; }
  void SetClass(Node& node, Retention retention);
  void Link(int32_t block);
  void Unlink(int32_t block);

  std::vector<Node> nodes_;
  std::array<List, kRetentionClasses> lists_;
  std::set<Deadline> deadlines_;  // of queued blocks of kHigh and kPinned
  int32_t size_ = 0;
  int32_t pinned_ = 0;
  uint64_t next_push_ = 1;
};

}  // namespace kvring::replica
