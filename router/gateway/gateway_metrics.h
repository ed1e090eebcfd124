// GatewayMetrics: the data path's counters, looked up once, and the page of /metrics. Names are part of the
// product.
#pragma once

#include <array>
#include <string>

#include "common/metrics.h"
#include "router/gateway/http_upstream.h"
#include "router/gateway/router_guard.h"

namespace kvring::router {

struct GatewayMetrics {
  explicit GatewayMetrics(MetricRegistry& registry);

  Counter& Outcome(OutcomeClass outcome) { return *outcomes[static_cast<size_t>(outcome)]; }

  std::array<Counter*, kOutcomeClasses> outcomes;
  Counter& retries;
  Counter& failed_after_first_byte;
  Counter& client_closed;  // 499
  Counter& bad_events;
  Counter& missing_done;
  Counter& malformed_requests;  // refused before routing
  Counter& key_limited;
  BucketHistogram& ttft;
  BucketHistogram& duration;
};

/// Everything in the registry, then what the core and the upstream pools know at this moment.
std::string MetricsPage(const MetricRegistry& registry, RouterGuard& guard,
                        const HttpUpstreamCounters& upstream, size_t client_connections);

}  // namespace kvring::router
