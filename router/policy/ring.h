// Ring: consistent hashing (Karger et al. 1997) with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016).
// Each member owns round(256 · weight) points, at hashes of its URL and the point's number, so equal member
// sets give equal rings in any order on any router; adding a member takes keys only from others to it,
// removing one moves only its own keys.
//
//   bounded load:  cap_i = ceil(1.25 · (L + 1) · w_i / Σ w),  L = requests in flight on the eligible members
//                  the first distinct member clockwise of the key with load_i < cap_i; there always is one
//
// Ineligible members are stepped over, so their keys go to the next distinct member and return with it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "router/fleet/replica_table.h"

namespace kvring::router {

class Ring {
 public:
  static constexpr double kLoadFactor = 1.25;
  static constexpr int kPointsPerWeight = 256;

  /// Takes over changes of membership and weights; cheap when there are none.
  void Sync(const ReplicaTable& fleet);

  /// Distinct eligible members clockwise of the key, at most `limit`; `eligible` ascends; ends early when
  /// `enough(slot)` is true.
  void Walk(uint64_t key, std::span<const uint32_t> eligible, size_t limit,
            const std::function<bool(uint32_t)>& enough);

  struct BoundedPick {
    uint32_t slot = 0;
    bool spilled = false;  // not the key's first eligible member
  };
  BoundedPick ChooseBounded(uint64_t key, std::span<const uint32_t> eligible, const ReplicaTable& fleet,
                            Instant now);

  size_t point_count() const { return points_.size(); }

 private:
  struct Point {
    uint64_t hash;
    uint32_t slot;
    friend bool operator<(const Point& a, const Point& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.slot < b.slot;
    }
  };
  struct Member {
    ReplicaId id;
    double weight = 0;
    uint32_t taken = 0;  // visited in this walk if equal to walk_
  };
  void RemovePoints(uint32_t slot);
  void AddPoints(const Replica& replica);

  uint64_t version_ = 0;
  uint32_t walk_ = 0;
  std::vector<Point> points_;
  std::vector<Member> members_;  // by slot
};

}  // namespace kvring::router
