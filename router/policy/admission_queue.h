// AdmissionQueue: requests that no replica has room for, waiting in order: higher priority first, then the
// earlier arrival. One line per pool, of bounded length; one that would be longer sheds its last member,
// which is the newcomer unless that has a higher priority (or waits again, after a failed attempt). It knows
// ids and ranks alone: who has room is asked of the caller, one request after another over all pools in order
// of rank, so that pools that share replicas starve none. Pure; not thread-safe.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/ids.h"
#include "common/instant.h"

namespace kvring::router {

struct AdmissionRules {
  int32_t max_in_flight_per_replica = 0;  // 0: no bound
  size_t queue_length = 0;                // per pool
  Duration queue_timeout = std::chrono::seconds(30);

  /// Off: nobody waits, a replica is never full, and cooling ones are chosen last.
  bool on() const { return max_in_flight_per_replica > 0 || queue_length > 0; }
};

/// Place in line: smaller goes first.
struct QueueRank {
  int64_t minus_priority = 0;
  uint64_t arrival = 0;  // unique
  friend auto operator<=>(const QueueRank&, const QueueRank&) = default;
};

struct QueueTicket {
  std::string pool;
  QueueRank rank;
  RequestId id;
  Instant until;
};

class AdmissionQueue {
 public:
  enum class Offered { kTaken, kNotByThis, kNotByAnyOfPool };

  /// Returns whom it sheds: nobody, the last in line, or the newcomer itself.
  std::optional<RequestId> Add(const QueueTicket& ticket, size_t max_length);
  void Remove(const QueueTicket& ticket);
  /// Somebody of the pool waits who goes before this rank.
  bool AnyBefore(const std::string& pool, QueueRank rank) const;
  /// Calls `offer` for those who wait, in order; who is taken leaves the line. `offer` must not change it.
  void Offer(const std::function<Offered(RequestId)>& offer);
  /// One whose time is over at `now`, which leaves the line; nullopt: none (any more).
  std::optional<RequestId> TakeExpired(Instant now);
  size_t size() const { return by_time_.size(); }

 private:
  using Line = std::map<QueueRank, QueueTicket>;

  std::map<std::string, Line> lines_;  // none is empty
  std::map<std::pair<Instant, uint64_t>, QueueTicket> by_time_;
};

}  // namespace kvring::router
