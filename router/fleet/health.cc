#include "router/fleet/health.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "router/fleet/outcome.h"

namespace kvring::router {
namespace {
constexpr int kMaxBackoffShift = 6;
constexpr Duration kDefaultCooling = std::chrono::seconds(1);
constexpr Duration kMaxCooling = std::chrono::seconds(60);
}  // namespace

std::string_view CapacitySourceName(CapacitySource source) {
  switch (source) {
    case CapacitySource::kConfig:
      return "config";
    case CapacitySource::kRegistered:
      return "registered";
    case CapacitySource::kMetrics:
      return "metrics";
    case CapacitySource::kLearnt:
      return "learnt";
    case CapacitySource::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view ReplicaStateName(ReplicaState state) {
  switch (state) {
    case ReplicaState::kStarting:
      return "starting";
    case ReplicaState::kUp:
      return "up";
    case ReplicaState::kDown:
      return "down";
    case ReplicaState::kEjected:
      return "ejected";
    case ReplicaState::kDraining:
      return "draining";
  }
  return "unknown";
}

std::string_view OutcomeName(OutcomeClass outcome) {
  switch (outcome) {
    case OutcomeClass::kOk:
      return "ok";
    case OutcomeClass::kClientError:
      return "client_error";
    case OutcomeClass::kBackpressure:
      return "backpressure";
    case OutcomeClass::kReplicaError:
      return "replica_error";
    case OutcomeClass::kStreamError:
      return "stream_error";
    case OutcomeClass::kClientAbort:
      return "client_abort";
    case OutcomeClass::kTimeout:
      return "timeout";
    case OutcomeClass::kRefused:
      return "refused";
  }
  return "unknown";
}

void Health::SetProbed(Probed probed) {
  const bool flipped = (probed_ == Probed::kDown) != (probed == Probed::kDown);
  if (flipped) ++transitions_;
  probed_ = probed;
}

void Health::OnProbe(bool ok, Instant now) {
  probe_failures_ = ok ? 0 : probe_failures_ + 1;
  probe_successes_ = ok ? probe_successes_ + 1 : 0;
  if (ok && (probed_ == Probed::kUnknown || probe_successes_ >= rules_.healthy_after)) {
    if (probed_ == Probed::kDown) slow_until_ = now + rules_.slow_start;
    SetProbed(Probed::kUp);
  }
  if (!ok && probe_failures_ >= rules_.unhealthy_after) SetProbed(Probed::kDown);
}

void Health::OnContact() {
  if (probed_ == Probed::kUnknown) SetProbed(Probed::kUp);
}

void Health::OnSuccess() {
  OnContact();
  if (!ejected_) failures_ = 0;
}

void Health::OnFailure(Instant now) {
  if (ejected_ || ++failures_ < rules_.eject_after) return;
  ++transitions_;
  Eject(now);
}

void Health::OnTrialSuccess(Instant now) {
  OnContact();
  if (!ejected_ || !trial_running_) return;  // a new epoch closed it meanwhile
  trial_running_ = false;
  if (++trial_successes_ < rules_.healthy_after) return;
  ejected_ = false;
  ejections_ = 0;
  failures_ = 0;
  slow_until_ = now + rules_.slow_start;
  ++transitions_;
}

int32_t Health::SlowStartLimit(Instant now) const {
  constexpr double kDoublings = 10;
  if (now >= slow_until_) return std::numeric_limits<int32_t>::max();
  const double gone = 1 - ToSeconds(slow_until_ - now) / ToSeconds(rules_.slow_start);
  return static_cast<int32_t>(std::exp2(kDoublings * std::max(gone, 0.0)) + 1e-6);
}

void Health::OnTrialFailure(Instant now) {
  if (ejected_ && trial_running_) Eject(now);
}

void Health::Eject(Instant now) {
  ejected_ = true;
  trial_running_ = false;
  trial_successes_ = 0;
  failures_ = 0;
  open_until_ = now + rules_.eject_time * (int64_t{1} << std::min(ejections_, kMaxBackoffShift));
  ++ejections_;
}

void Health::OnBackpressure(Duration retry_after, Instant now) {
  OnContact();
  const Duration wait = std::min(retry_after.count() > 0 ? retry_after : kDefaultCooling, kMaxCooling);
  cooling_until_ = std::max(cooling_until_, now + wait);
}

void Health::OnNewEpoch() {
  if (ejected_) ++transitions_;
  ejected_ = trial_running_ = false;
  failures_ = ejections_ = trial_successes_ = 0;
  cooling_until_ = {};
  SetProbed(Probed::kUp);
}

ReplicaState Health::state() const {
  if (ejected_) return ReplicaState::kEjected;
  if (probed_ == Probed::kDown) return ReplicaState::kDown;
  return probed_ == Probed::kUp ? ReplicaState::kUp : ReplicaState::kStarting;
}

Instant Health::NextChange(Instant now) const {
  Instant next{std::numeric_limits<int64_t>::max()};
  if (ejected_ && open_until_ > now) next = std::min(next, open_until_);
  if (cooling_until_ > now) next = std::min(next, cooling_until_);
  return next;
}

}  // namespace kvring::router
