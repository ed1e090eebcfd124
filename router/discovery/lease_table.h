// LeaseTable: which replicas registered themselves, until when, and in which process life. A replica is taken
// out once its lease has ended AND its health probes fail: a router that is slow to hear renewals never drops
// a replica that serves. Pure: time and health are arguments. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/instant.h"

namespace kvring::router {

inline constexpr Duration kLease = std::chrono::seconds(3);

class LeaseTable {
 public:
  enum class Change {
    kAdded,
    kRenewed,
    kNewEpoch,  // another process at the same address: its cache is empty
    kStale,  // an epoch that has been replaced already (a late message of the old process): nothing changed
  };

  explicit LeaseTable(Duration lease = kLease) : lease_(lease) {}

  Change Register(const std::string& address, Epoch epoch, Instant now);
  /// True: it was there with this epoch, and is forgotten.
  bool Deregister(const std::string& address, Epoch epoch);
  /// Forgets and returns those whose lease is over and for which `failing(address)`, in order of address.
  std::vector<std::string> TakeExpired(Instant now,
                                       const std::function<bool(const std::string& address)>& failing);

  Duration lease() const { return lease_; }
  size_t size() const { return members_.size(); }
  bool contains(const std::string& address) const { return members_.contains(address); }

 private:
  struct Member {
    Epoch epoch;
    Epoch previous;  // the life before this one
    Instant until;
  };

  const Duration lease_;
  std::map<std::string, Member> members_;
};

}  // namespace kvring::router
