#include "router/policy/ring.h"

#include <algorithm>
#include <cmath>

#include "common/block_hash.h"
#include "common/check.h"
#include "common/random.h"

namespace kvring::router {

void Ring::Sync(const ReplicaTable& fleet) {
  if (version_ == fleet.membership_version()) return;
  version_ = fleet.membership_version();
  if (members_.size() < fleet.slot_count()) members_.resize(fleet.slot_count());
  for (uint32_t slot = 0; slot < members_.size(); ++slot) {
    const Replica* replica = slot < fleet.slot_count() ? fleet.at(slot) : nullptr;
    if (replica != nullptr && replica->removed) replica = nullptr;
    const ReplicaId id = replica ? replica->id : ReplicaId{};
    const double weight = replica ? replica->weight : 0;
    if (members_[slot].id == id && members_[slot].weight == weight) continue;
    RemovePoints(slot);
    members_[slot].id = id;
    members_[slot].weight = weight;
    if (replica) AddPoints(*replica);
  }
}

void Ring::RemovePoints(uint32_t slot) {
  std::erase_if(points_, [&](const Point& p) { return p.slot == slot; });
}

void Ring::AddPoints(const Replica& replica) {
  const double wanted = kPointsPerWeight * replica.weight;
  const auto count = wanted <= 0 ? 0 : std::max<int64_t>(std::llround(std::min(wanted, 1e5)), 1);
  const uint64_t seed = HashName(replica.url);
  const auto middle = static_cast<std::ptrdiff_t>(points_.size());
  for (int64_t i = 0; i < count; ++i)
    points_.push_back({MixBits(seed + static_cast<uint64_t>(i)), replica.slot});
  std::sort(points_.begin() + middle, points_.end());
  std::inplace_merge(points_.begin(), points_.begin() + middle, points_.end());
}

void Ring::Walk(uint64_t key, std::span<const uint32_t> eligible, size_t limit,
                const std::function<bool(uint32_t)>& enough) {
  ++walk_;
  const auto start = std::lower_bound(points_.begin(), points_.end(), Point{MixBits(key), 0});
  auto at = static_cast<size_t>(start - points_.begin());
  size_t found = 0;
  for (size_t step = 0; step < points_.size() && found < std::min(limit, eligible.size()); ++step, ++at) {
    const uint32_t slot = points_[at % points_.size()].slot;
    if (members_[slot].taken == walk_) continue;
    members_[slot].taken = walk_;
    if (!std::binary_search(eligible.begin(), eligible.end(), slot)) continue;
    ++found;
    if (enough(slot)) return;
  }
}

Ring::BoundedPick Ring::ChooseBounded(uint64_t key, std::span<const uint32_t> eligible,
                                      const ReplicaTable& fleet, Instant now) {
  double in_flight = 0, weights = 0;
  for (const uint32_t slot : eligible) {
    in_flight += fleet.at(slot)->Requests(now);
    weights += fleet.at(slot)->weight;
  }
  BoundedPick pick;
  bool first = true, chosen = false;
  Walk(key, eligible, eligible.size(), [&](uint32_t slot) {
    const Replica& replica = *fleet.at(slot);
    const double cap = std::ceil(kLoadFactor * (in_flight + 1) * replica.weight / weights);
    if (replica.Requests(now) >= cap) {
      first = false;
      return false;
    }
    pick = {slot, !first};
    chosen = true;
    return true;
  });
  KVRING_CHECK(chosen);  // some member is below its cap, as the caps sum to more than L
  return pick;
}

}  // namespace kvring::router
