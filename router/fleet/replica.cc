#include "router/fleet/replica.h"

#include <cmath>
#include <cstdio>

#include "common/block_hash.h"

namespace kvring::router {
namespace {

std::string OpaqueName(std::string_view url) {
  char text[16];
  std::snprintf(text, sizeof text, "r-%08x", static_cast<unsigned>(HashName(url) & 0xffffffffu));
  return text;
}

}  // namespace

Replica::Replica(ReplicaId id_, uint32_t slot_, const ReplicaSpec& spec, const HealthRules& rules)
    : id(id_),
      slot(slot_),
      name(OpaqueName(spec.url)),
      url(spec.url),
      models(spec.models),
      weight(spec.weight),
      kv_tokens(spec.kv_tokens),
      kv_source(spec.kv_source),
      health(rules) {}

void Slowness::Observe(double expected_s, double observed_s) {
  n_ = n_ * kKeep + 1;
  expected_ = expected_ * kKeep + expected_s;
  observed_ = observed_ * kKeep + observed_s;
  const double prior = kPriorRequests * expected_ / n_;
  if (expected_ + prior <= 0) return;
  const double ratio = std::clamp((observed_ + prior) / (expected_ + prior), 0.125, 8.0);
  value_ = std::exp2(std::round(16 * std::log2(ratio)) / 16);
}

bool Replica::Serves(std::string_view model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

bool Replica::Judge(OutcomeClass outcome, bool trial, Duration retry_after, Instant now) {
  const ReplicaState before = health.state();
  switch (outcome) {
    case OutcomeClass::kOk:
    case OutcomeClass::kClientError:
      trial ? health.OnTrialSuccess(now) : health.OnSuccess();
      break;
    case OutcomeClass::kBackpressure:
      if (trial) health.OnTrialForgotten();
      health.OnBackpressure(retry_after, now);
      return true;
    case OutcomeClass::kReplicaError:
    case OutcomeClass::kStreamError:
    case OutcomeClass::kTimeout:
      ++counters.failures;
      trial ? health.OnTrialFailure(now) : health.OnFailure(now);
      break;
    case OutcomeClass::kClientAbort:
    case OutcomeClass::kRefused:
      if (trial) health.OnTrialForgotten();
      break;
  }
  return trial || health.state() != before;
}

ReplicaView Replica::View(Instant now) const {
  return {.id = id,
          .name = name,
          .url = url,
          .models = models,
          .state = state(),
          .epoch = epoch,
          .weight = weight,
          .in_flight = load.in_flight,
          .pending_prefill_tokens = load.pending_prefill_tokens,
          .kv_capacity_tokens = kv_tokens,
          .kv_source = kv_source,
          .requests = counters.requests,
          .failures = counters.failures,
          .prompt_tokens = counters.prompt_tokens,
          .cached_tokens = counters.cached_tokens,
          .load_stale = !load_fresh(now),
          .load_errors = load_errors,
          .health_transitions = health.transitions(),
          .block_size = block_size};
}

void Replica::UpdateReleaseRate(double seconds) {
  constexpr double kMemorySeconds = 10;
  const double share = std::min(seconds / kMemorySeconds, 1.0);
  release_rate += share * (static_cast<double>(released_tokens) / seconds - release_rate);
  released_tokens = 0;
}

// A report also covers our own requests, so the larger of the two counts, not their sum.
int32_t Replica::Requests(Instant now) const {
  return load_fresh(now) ? std::max(load.in_flight, report.running + report.waiting) : load.in_flight;
}

int64_t Replica::PendingTokens(Instant now) const {
  return load_fresh(now) ? std::max(load.pending_prefill_tokens, report.pending_prefill_tokens)
                         : load.pending_prefill_tokens;
}

double Replica::BacklogSeconds(Instant now, double rate) const {
  const double own =
      std::min(ToSeconds(prefill_free_at - now), static_cast<double>(load.pending_prefill_tokens) / rate);
  const double told = load_fresh(now) ? static_cast<double>(report.pending_prefill_tokens) / rate : 0;
  return std::max({own, told, 0.0});
}

int32_t Replica::Decoding(Instant now) const {
  const int32_t own = load.in_flight - load.awaiting_first_token;
  return load_fresh(now) ? std::max(own, report.running - load.awaiting_first_token) : own;
}

}  // namespace kvring::router
