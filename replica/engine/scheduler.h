// Scheduler: which sequences compute how many tokens in the next step (continuous batching, Yu et al. 2022
// "Orca"; chunked prefill, Agrawal et al. 2024 "Sarathi-Serve"). Under a budget of max_batch_tokens, in rank
// order:
//
//   1 decodes       every running sequence with one pending token: a token per step until it is preempted
//   2 prefills      of running sequences, in chunks of what is left of the budget
//   3 admissions    of waiting ones, when the blocks of their whole history fit
//
// What does not fit may be passed by later ones max_bypasses times, and for max_bypass_time since it was
// first found not to fit; 0 is strict order. Under a window a sequence is admitted with the blocks it holds
// at most, and a chunk is no longer than the pool has room for. What has been preempted is never passed. A
// decode without room preempts the last in rank (recompute: its blocks go back, its written blocks stay
// matchable). The first in rank is never preempted by others, and any sequence alone fits the pool: so one
// always advances. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "common/instant.h"
#include "replica/engine/executor.h"
#include "replica/engine/sequence.h"
#include "replica/kv/block_manager.h"

namespace kvring::replica {

struct SchedulerOptions {
  int32_t max_batch_tokens = 512;  // above max_running, so that prefill advances beside a full set of decodes
  int32_t max_running = 64;        // sequences
  int32_t max_waiting = 4096;      // requests that have never run
  int32_t max_bypasses = 16;
  Duration max_bypass_time = std::chrono::seconds(10);
};

struct SchedulerStats {
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;  // computed before, given up by preemption
  uint64_t bypasses = 0;
};

struct ScheduledSequence {
  Sequence* sequence = nullptr;
  int32_t tokens = 0;
};

struct StepPlan {
  std::vector<ScheduledSequence> items;
  std::vector<BlockCopy> copies;
  std::vector<Sequence*> admitted;  // for the first time
  int32_t preemptions = 0;
};

class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, BlockManager& blocks);

  /// A sequence that has never run. The scheduler keeps the pointer until Remove.
  void Enqueue(Sequence& sequence);
  /// A sibling that was just forked and holds its blocks; takes one of `parent`'s slots.
  void AddFork(Sequence& fork, Sequence& parent);
  /// Finished or cancelled: forgets it and releases its blocks.
  void Remove(Sequence& sequence);

  /// Plans one step. Valid until the next call. Empty only when nothing waits or runs.
  const StepPlan& Plan(Instant now);

  const SchedulerOptions& options() const { return options_; }
  const SchedulerStats& stats() const { return stats_; }
  std::span<Sequence* const> running() const { return running_; }
  int32_t waiting() const { return static_cast<int32_t>(waiting_.size()); }
  /// Tokens that running and waiting sequences have still to prefill (a decode's one token is not counted).
  int64_t pending_prefill_tokens() const;

 private:
  struct ByRank {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
  };

  void PlanDecodes();
  void PlanPrefills();
  void PlanAdmissions(Instant now);
  bool Schedule(Sequence& sequence, int32_t tokens);
  bool MakeRoom(Sequence& sequence, int32_t end);
  void Preempt(Sequence& victim);
  bool TryAdmit(Sequence& sequence);
  void StartRunning(Sequence& sequence);
  void MarkBlocked(Sequence& sequence, Instant now);
  bool MayBePassed(const Sequence& sequence, Instant now) const;
  void CountBypass();

  SchedulerOptions options_;
  BlockManager& blocks_;
  int32_t max_chunk_;
  std::vector<Sequence*> running_;  // sorted by rank
  std::set<Sequence*, ByRank> waiting_;
  std::vector<Sequence*> blocked_;  // found not to fit in this step
  int32_t used_slots_ = 0;
  int32_t budget_ = 0;
  int64_t waiting_tokens_ = 0;
  StepPlan plan_;
  SchedulerStats stats_;
};

}  // namespace kvring::replica
