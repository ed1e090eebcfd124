// QueueReplica: a replica at queue fidelity: the real block manager under the scheduler's rules (scheduler.h:
// decodes, prefills in chunks, admissions), with one event for a whole run of steps that only decode.
//
//   step with prefill   one event, as at step fidelity
//   run of k decodes    k = steps until a sequence ends or begins a block; the j-th takes
//                       base + n · per_decode_sequence + per_context_token · (S + j · n)
//                       n: sequences, S: tokens they hold at the run's start
//
// A request that comes in the midst waits for the end of the step under way, as it would at the engine. Left
// out: priorities, tenants, several choices, pins, windows. Pure; not thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "replica/kv/block_manager.h"
#include "sim/replica_model.h"

namespace kvring::sim {

/// Tokens per id at queue fidelity, for a block of so many tokens: a whole index block of the router where
/// that divides.
int32_t QueueGrain(int32_t block_tokens);

class QueueReplica final : public ReplicaModel {
 public:
  explicit QueueReplica(const SimReplicaOptions& options);

  absl::Status Add(SimRequest request, Instant now) override;
  bool HasWork() const override { return !running_.empty() || !waiting_.empty(); }
  Duration Step(Instant now) override;
  std::optional<Instant> Interrupt(Instant now) override;
  StepMessage TakeMessage() override;
  void Cancel(uint32_t index) override;
  Snapshot CacheSnapshot() const override;
  router::LoadReport Load() const override;
  std::string CheckIntegrity() const override;
  ReplicaStats stats() const override;

 private:
  struct Sequence {
    SimRequest request;    // ids of the prompt and of what will be generated
    uint64_t arrival = 0;  // its rank: who came earlier goes first
    int32_t prompt_tokens = 0;
    int32_t generated = 0;
    int32_t computed = 0;  // tokens whose keys and values are there
    int32_t chunk = 0;     // of the step under way
    int32_t cached = 0;
    int32_t bypasses = 0;
    Instant added;
    Instant blocked_since;
    bool blocked = false;
    bool admitted_once = false;
    bool preempted = false;
    replica::BlockTable table;

    static uint64_t arrival_of(const std::unique_ptr<Sequence>& sequence) { return sequence->arrival; }
    int32_t length() const { return prompt_tokens + generated; }
    bool decoding() const { return generated > 0 && length() - computed == 1; }
  };
  using Owned = std::unique_ptr<Sequence>;
  enum class Admission : uint8_t { kAdmitted, kNoRoom, kComputedByAnother };

  void PlanDecodes();
  void PlanPrefills();
  void PlanAdmissions(Instant now);
  Admission TryAdmit(Sequence& sequence, Instant now);
  void BeginChunk(Sequence& sequence);
  bool MakeRoom(Sequence& sequence);
  void PreemptLast();
  Duration Begin(Instant now);
  int64_t StepsOfRun() const;
  double SecondsOfRun(int64_t steps) const;
  void EndChunk(Sequence& sequence);
  void EndDecodes();
  bool Ended(const Sequence& sequence) const;
  void Finish(Sequence& sequence);
  int32_t IdsOf(int32_t tokens) const { return (tokens + grain_ - 1) / grain_; }

  SimReplicaOptions options_;
  int32_t grain_;
  double prefill_ids_per_second_;
  replica::CacheRoot root_;
  replica::BlockManager blocks_;
  std::vector<Owned> running_;  // by arrival
  std::deque<Owned> waiting_;   // preempted ones first
  std::vector<ReplicaEvent> events_;
  uint64_t arrivals_ = 0;
  int64_t waiting_tokens_ = 0;
  int32_t budget_ = 0;
  bool preempting_ = false;
  // The run under way.
  Instant begun_;
  int64_t steps_ = 0;  // 1 where it prefills
  bool prefills_ = false;
  int32_t decoding_ = 0;
  double first_ns_ = 0;   // of its first step
  double growth_ns_ = 0;  // from each step to the next
  double decode_step_ns_ = 0;
  ReplicaStats stats_;
};

}  // namespace kvring::sim
