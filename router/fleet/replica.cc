#include "router/fleet/replica.h"

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

int32_t Replica::Decoding(Instant now) const {
  const int32_t own = load.in_flight - load.awaiting_first_token;
  return load_fresh(now) ? std::max(own, report.running - load.awaiting_first_token) : own;
}

}  // namespace kvring::router
