// Health of one replica: active probes (down after `unhealthy_after` failures in a row, up after
// `healthy_after`), and a circuit breaker on traffic (ejected after `eject_after` failures in a row, for
// eject_time · 2^k; then half-open: one request at a time, `healthy_after` successes close it, one failure
// opens it again for twice as long, at most 64 times eject_time). Who comes back from either starts slowly:
// one request at a time at first, twice as many each tenth of slow_start. Back-pressure only cools: the
// replica is chosen last until the cooling ends, and is never ejected by it. Time and events are arguments.
// Not thread-safe.
#pragma once

#include <algorithm>

#include "common/instant.h"
#include "router/fleet/replica_types.h"

namespace kvring::router {

/// What becomes of a pool of which more than half is ejected.
enum class PanicRule {
  kRouteToAll,  // the ejected ones are chosen as well
  kRefuse,      // nobody is: what is left would be overrun
};

struct HealthRules {
  int unhealthy_after = 3;
  int healthy_after = 2;
  int eject_after = 5;
  Duration eject_time = std::chrono::seconds(10);
  Duration slow_start = std::chrono::seconds(10);  // after an ejection or a failure of probes; 0: none
  PanicRule panic = PanicRule::kRouteToAll;
};

class Health {
 public:
  explicit Health(const HealthRules& rules) : rules_(rules) {}

  void OnProbe(bool ok, Instant now);
  /// The replica told its facts, or served: it is up without a probe.
  void OnContact();
  /// Of an ordinary request; ignored while ejected (it was sent before).
  void OnSuccess();
  void OnFailure(Instant now);
  void OnBackpressure(Duration retry_after, Instant now);
  /// A new process: ejection and cooling belonged to the old one.
  void OnNewEpoch();

  /// kStarting, kUp, kDown or kEjected (open or half-open).
  ReplicaState state() const;
  bool cooling(Instant now) const { return now < cooling_until_; }
  Instant cooling_end(Instant now) const { return std::max(cooling_until_, now); }
  /// Ejected, and its time is over: it may take one request as a test.
  bool wants_trial(Instant now) const { return ejected_ && !trial_running_ && now >= open_until_; }
  /// Until when it starts slowly; past: it does not.
  Instant slow_until() const { return slow_until_; }
  /// How many requests it may have under way while it does.
  int32_t SlowStartLimit(Instant now) const;
  void BeginTrial() { trial_running_ = true; }
  void OnTrialSuccess(Instant now);
  void OnTrialFailure(Instant now);
  /// The trial ended without a verdict (client abort, back-pressure).
  void OnTrialForgotten() { trial_running_ = false; }
  /// Until when the answers above hold if no event comes; Instant max when nothing is timed.
  Instant NextChange(Instant now) const;
  uint64_t transitions() const { return transitions_; }

 private:
  enum class Probed { kUnknown, kUp, kDown };
  void SetProbed(Probed probed);
  void Eject(Instant now);

  HealthRules rules_;
  Probed probed_ = Probed::kUnknown;
  int probe_failures_ = 0;
  int probe_successes_ = 0;
  int failures_ = 0;
  bool ejected_ = false;
  bool trial_running_ = false;
  int trial_successes_ = 0;
  int ejections_ = 0;
  Instant open_until_{};
  Instant cooling_until_{};
  Instant slow_until_{};
  uint64_t transitions_ = 0;
};

}  // namespace kvring::router
