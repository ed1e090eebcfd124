// SimReplica: a replica at step fidelity: the real engine on a timed executor. Pure; not thread-safe.
#pragma once

#include <string>

#include "replica/engine/engine.h"
#include "sim/replica_model.h"

namespace kvring::sim {

class SimReplica final : public ReplicaModel {
 public:
  explicit SimReplica(const SimReplicaOptions& options);

  absl::Status Add(SimRequest request, Instant now) override;
  bool HasWork() const override { return engine_.HasWork(); }
  Duration Step(Instant now) override;
  std::optional<Instant> Interrupt(Instant) override { return std::nullopt; }
  StepMessage TakeMessage() override;
  void Cancel(uint32_t index) override { engine_.Cancel(RequestId{uint64_t{index} + 1}); }
  Snapshot CacheSnapshot() const override;
  router::LoadReport Load() const override;
  std::string CheckIntegrity() const override { return engine_.CheckIntegrity(); }
  ReplicaStats stats() const override;

 private:
  double prefill_tokens_per_second_;
  Duration decode_step_{};  // the latest that did nothing else
  TimedExecutor executor_;
  replica::Engine engine_;
  uint64_t next_sequence_ = 1;  // of cache events
};

}  // namespace kvring::sim
