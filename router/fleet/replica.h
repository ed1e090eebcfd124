// Replica: all that is believed of one member of the fleet, but for its cache (ResidencyIndex): identity, health, load,
// learnt speeds, counters. Load is what this router dispatched and has not got back; a fresh load report adds what other
// routers sent. Every dispatch charges at least one token of prefill and is returned exactly once (by Charge's owner).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/instant.h"
#include "router/fleet/health.h"
#include "router/fleet/replica_types.h"

namespace kvring::router {

/// A load report older than this is not used.
inline constexpr Duration kLoadStaleAfter = std::chrono::seconds(5);

/// What this router has under way on one replica.
struct OwnLoad {
  int32_t in_flight = 0;
  int32_t awaiting_first_token = 0;
  int64_t pending_prefill_tokens = 0;  // uncached, dispatched, no first token yet
  int64_t pending_kv_tokens = 0;       // uncached prompt + expected output, dispatched, not admitted yet
};

/// Learnt speed of prefill: tokens prefilled per second of busy time, both decayed over about 30 s of busy time.
class PrefillRate {
 public:
  /// Call at each change of the number of requests awaiting their first token, before the change.
  void Advance(bool busy, Instant now) {
    if (busy) busy_s_ += ToSeconds(now - last_);
    last_ = now;
  }
  void Done(int64_t tokens) {
    tokens_ += static_cast<double>(tokens);
    if (busy_s_ < kWindowSeconds) return;
    tokens_ *= 0.5;
    busy_s_ *= 0.5;
  }
  /// Tokens per second, drawn towards `expected` until there is evidence.
  double Estimate(double expected) const {
    return (tokens_ + expected * kPriorSeconds) / (busy_s_ + kPriorSeconds);
  }
  bool known() const { return busy_s_ >= kPriorSeconds; }

 private:
  static constexpr double kWindowSeconds = 30;
  static constexpr double kPriorSeconds = 1;
  double tokens_ = 0;
  double busy_s_ = 0;
  Instant last_{};
};

struct ReplicaCounters {
  uint64_t requests = 0;
  uint64_t failures = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
};

struct Replica {
  Replica(ReplicaId id_, uint32_t slot_, const ReplicaSpec& spec, const HealthRules& rules);

  bool Serves(std::string_view model) const;
  ReplicaState state() const { return draining ? ReplicaState::kDraining : health.state(); }
  bool load_fresh(Instant now) const { return reported && now - reported_at <= kLoadStaleAfter; }

  // What policies score by. A stale report counts for nothing, never as zero load: own counts remain.
  int32_t Requests(Instant now) const;
  int64_t PendingTokens(Instant now) const;
  int32_t Decoding(Instant now) const;

  ReplicaId id;
  uint32_t slot;  // dense index; reused after the replica is gone
  std::string name;
  std::string url;
  std::vector<std::string> models;
  double weight;
  int64_t kv_tokens;
  CapacitySource kv_source;
  Epoch epoch;
  int32_t block_size = 0;
  int32_t context_length = 0;
  bool draining = false;
  bool removed = false;

  Health health;
  OwnLoad load;
  PrefillRate rate;
  bool reported = false;
  Instant reported_at{};
  LoadReport report;
  double decode_step_s = 0;   // EWMA; 0: unknown
  double release_rate = 0;    // EWMA of KV tokens freed per second; 0: unknown
  int64_t released_tokens = 0;  // since the last tick
  double assigned = 0;        // decayed count of requests sent here (see ReplicaTable::CountAssignment)
  ReplicaCounters counters;
};

}  // namespace kvring::router
