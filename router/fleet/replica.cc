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

// A report also covers our own requests, so the larger of the two counts, not their sum.
int32_t Replica::Requests(Instant now) const {
  return load_fresh(now) ? std::max(load.in_flight, report.running + report.waiting) : load.in_flight;
}

int64_t Replica::PendingTokens(Instant now) const {
  return load_fresh(now) ? std::max(load.pending_prefill_tokens, report.pending_prefill_tokens)
                         : load.pending_prefill_tokens;
}

double Replica::BacklogSeconds(Instant now, double rate) const {
  const double own = std::min(ToSeconds(prefill_free_at - now), static_cast<double>(load.pending_prefill_tokens) / rate);
  const double told = load_fresh(now) ? static_cast<double>(report.pending_prefill_tokens) / rate : 0;
  return std::max({own, told, 0.0});
}

int32_t Replica::Decoding(Instant now) const {
  const int32_t own = load.in_flight - load.awaiting_first_token;
  return load_fresh(now) ? std::max(own, report.running - load.awaiting_first_token) : own;
}

}  // namespace kvring::router
