// MetricsText: the core's numbers in Prometheus text form, made anew at each scrape: gauges only of present
// members, so that a removed replica's series vanish with it (OBS-04), and counters by outcome and by reason.
// Pure.
#pragma once

#include <string>

#include "router/router.h"

namespace kvring::router {

/// Appended to what a MetricRegistry exposes; its names start with kvring_core_ and collide with none of the
/// gateway's.
std::string MetricsText(const Router& router, Instant now);

}  // namespace kvring::router
