// Replica: all that is believed of one member of the fleet, but for its cache (ResidencyIndex): identity,
// health, load, learnt speeds, counters. Load is what this router dispatched and has not got back; a fresh
// load report adds what other routers sent. Every dispatch charges at least one token of prefill and is
// returned exactly once (by Charge's owner).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/instant.h"
#include "router/fleet/capacity_estimator.h"
#include "router/fleet/health.h"
#include "router/fleet/outcome.h"
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
  std::vector<uint32_t> prefilling;    // the index's inserts for prompts without a first token yet
};

/// How much slower than the fleet's model of time to first token (PrefillModel) one replica is: ratio of
/// sums, observed over expected, with fading memory and drawn towards 1 until there is evidence. A replica
/// whose queue grows also looks slow, and is sent less. In steps of 2^(1/16), so that noise does not tell
/// equal replicas apart and ties stay ties.
class Slowness {
 public:
  void Observe(double expected_s, double observed_s);
  double value() const { return value_; }

 private:
  static constexpr double kKeep = 0.98;
  static constexpr double kPriorRequests = 20;
  double expected_ = 0, observed_ = 0, n_ = 0;
  double value_ = 1;
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
  /// By the operator's word or by its own: each is taken back only by who gave it.
  bool draining() const { return drained || leaving; }
  ReplicaState state() const { return draining() ? ReplicaState::kDraining : health.state(); }
  bool load_fresh(Instant now) const { return reported && now - reported_at <= kLoadStaleAfter; }

  // What policies score by. A stale report counts for nothing, never as zero load: own counts remain.
  int32_t Requests(Instant now) const;
  int64_t PendingTokens(Instant now) const;
  /// Takes the outcome of one attempt for its health and counters: 4xx is the request's, 429/503 means busy,
  /// the rest is the replica's, but for the client's own abort. True if it may have changed who is eligible.
  bool Judge(OutcomeClass outcome, bool trial, Duration retry_after, Instant now);
  /// Without what only the fleet knows (indexed tokens, prefill rate).
  ReplicaView View(Instant now) const;
  /// From the tokens released in the last so many seconds; fades over about ten of them.
  void UpdateReleaseRate(double seconds);
  /// What of the pending tokens is likely not prefilled yet, though no first token told so; in seconds.
  double BacklogSeconds(Instant now, double rate) const;
  int32_t Decoding(Instant now) const;

  ReplicaId id;
  uint32_t slot;  // dense index; reused after the replica is gone
  std::string name;
  std::string url;
  std::vector<std::string> models;
  double weight;
  int64_t kv_tokens;
  CapacitySource kv_source;
  CapacityEstimator capacity;  // what kv_tokens is learnt with, where nobody tells
  Epoch epoch;
  int32_t block_size = 0;
  int32_t context_length = 0;
  bool drained = false;  // an operator wants it so
  bool leaving = false;  // it says so itself
  bool removed = false;

  Health health;
  OwnLoad load;
  Slowness slowness;
  Instant prefill_free_at{};  // when what was dispatched should be prefilled, one after another
  bool reported = false;
  Instant reported_at{};
  LoadReport report;
  std::string load_error;  // why its load cannot be read; empty: it can, or nobody asked
  uint64_t load_errors = 0;
  double release_rate = 0;      // EWMA of KV tokens freed per second; 0: unknown
  int64_t released_tokens = 0;  // since the last tick
  int64_t vain_forecasts = 0;   // requests of which much was expected in its cache; 0 once it found anything
  bool reuses = false;          // it has ever told of cached tokens
  ReplicaCounters counters;
};

}  // namespace kvring::router
