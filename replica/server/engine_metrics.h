// EngineMetrics: the engine's load and counts as Prometheus series. Update is called on the engine's thread.
#pragma once

#include <vector>

#include "common/metrics.h"
#include "replica/engine/engine.h"

namespace kvring::replica {

class EngineMetrics {
 public:
  explicit EngineMetrics(MetricRegistry& metrics);
  void Update(const EngineLoad& load, const BlockManagerStats& cache, const SchedulerStats& scheduler);

 private:
  Gauge& running_;
  Gauge& waiting_;
  Gauge& kv_used_tokens_;
  Gauge& kv_cached_tokens_;
  Gauge& kv_host_tier_tokens_;
  Gauge& pending_prefill_tokens_;
  std::vector<Counter*> cache_counters_;  // in the order of the table in the source
  std::vector<Counter*> scheduler_counters_;
};

}  // namespace kvring::replica
