// SimReplica: one replica of a simulated fleet, the real engine on a timed executor. Its owner hands it
// requests and steps it; what a step did comes out at the step's end, as messages of a replica to a router.
// Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replica/engine/engine.h"
#include "router/fleet/replica_types.h"
#include "sim/timed_executor.h"

namespace kvring::sim {

struct SimReplicaOptions {
  int64_t kv_tokens = 0;
  int32_t block_tokens = 16;
  StepCostModel cost;
  replica::SchedulerOptions scheduler;
};

/// What a step says to the router, once it has ended.
struct StepMessage {
  std::vector<replica::EngineEvent> events;
  uint64_t first_sequence = 0;
  std::vector<router::CacheEvent> cache_events;
  std::optional<router::LoadReport> load;  // where one is due
};

class SimReplica {
 public:
  explicit SimReplica(const SimReplicaOptions& options);

  /// As Engine::Add.
  absl::Status Add(replica::EngineRequest request, Instant now) {
    return engine_.Add(std::move(request), now);
  }
  bool HasWork() const { return engine_.HasWork(); }
  /// Takes one step, which lasts this long.
  Duration Step(Instant now);
  /// Of the step that has ended.
  StepMessage TakeMessage();
  router::LoadReport Load() const;

  /// A fault that cannot be: an error in the accounts of the engine. Empty when all is well.
  std::string CheckIntegrity() const { return engine_.CheckIntegrity(); }
  const replica::SchedulerStats& scheduler_stats() const { return engine_.scheduler_stats(); }
  uint64_t evictions() const { return engine_.cache_stats().evictions; }

 private:
  double prefill_tokens_per_second_;
  TimedExecutor executor_;
  replica::Engine engine_;
};

}  // namespace kvring::sim
