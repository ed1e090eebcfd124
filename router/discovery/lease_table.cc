#include "router/discovery/lease_table.h"

namespace kvring::router {

LeaseTable::Change LeaseTable::Register(const std::string& address, Epoch epoch, Instant now) {
  const auto [it, fresh] = members_.try_emplace(address, Member{epoch, {}, now + lease_});
  if (fresh) return Change::kAdded;
  Member& member = it->second;
  if (epoch == member.previous && epoch != member.epoch) return Change::kStale;
  const bool renewed = epoch == member.epoch;
  if (!renewed) member = {epoch, member.epoch, {}};
  member.until = now + lease_;
  return renewed ? Change::kRenewed : Change::kNewEpoch;
}

bool LeaseTable::Deregister(const std::string& address, Epoch epoch) {
  const auto it = members_.find(address);
  if (it == members_.end() || it->second.epoch != epoch) return false;
  members_.erase(it);
  return true;
}

std::vector<std::string> LeaseTable::TakeExpired(Instant now,
                                                 const std::function<bool(const std::string&)>& failing) {
  std::vector<std::string> expired;
  for (auto it = members_.begin(); it != members_.end();) {
    if (it->second.until > now || !failing(it->first)) {
      ++it;
      continue;
    }
    expired.push_back(it->first);
    it = members_.erase(it);
  }
  return expired;
}

}  // namespace kvring::router
