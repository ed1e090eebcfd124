// Scheduler: which sequences compute how many tokens in the next step (continuous batching, Yu et al. 2022
// "Orca"; chunked prefill, Agrawal et al. 2024 "Sarathi-Serve"). Under a budget of max_batch_tokens:
//
//   1 decodes       every running sequence with one pending token: a token per step until it is preempted
//   2 prefills      of running sequences, by rank, in chunks of what is left of the budget
//   3 admissions    of waiting ones, in the order of waiting_queue.h, when the blocks of their history fit
//
// One whose next prefix block is being computed by another waits for it, and may be passed: no block is
// computed twice. What does not fit may be passed by later ones max_bypasses times, and for max_bypass_time
// since it was first found not to fit; 0 is strict order. What has been preempted is never passed. Under a
// window a sequence is admitted with the blocks it holds at most, and a chunk is no longer than the pool has
// room for.
//
// A decode without room preempts the last in rank (recompute: its blocks go back, its written blocks stay
// matchable). The first in rank is never preempted by others, and any sequence alone fits the pool, pinned
// blocks given up when nothing else is left: so one always advances. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/instant.h"
#include "replica/engine/executor.h"
#include "replica/engine/sequence.h"
#include "replica/engine/waiting_queue.h"
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
  uint64_t shared_waits = 0;      // admissions put off, a step at a time, for blocks that another computes
  uint64_t deadlocks_broken = 0;  // preemptions when every running sequence waited for a block
  uint64_t pins_given_up = 0;     // blocks
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
  /// Waiting sequences that one step looks at in vain.
  static constexpr size_t kMaxRefusedPerStep = 16;

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
  enum class Admission : uint8_t { kAdmitted, kNoRoom, kComputedByAnother };

  void Wait(Sequence& sequence);
  void PlanDecodes();
  void PlanPrefills();
  void PlanAdmissions(Instant now);
  bool Schedule(Sequence& sequence, int32_t tokens);
  bool MakeRoom(Sequence& sequence, int32_t end);
  void Preempt(Sequence& victim);
  void Unplan(const Sequence& victim);
  bool EveryoneLacksABlock() const;
  bool GiveUpPins();
  void AdmitInOrder(Instant now);
  Admission TryAdmit(Sequence& sequence);
  void StartRunning(Sequence& sequence);
  void MarkBlocked(Sequence& sequence, Instant now);
  bool MayBePassed(const Sequence& sequence, Instant now) const;
  void CountBypass();

  SchedulerOptions options_;
  BlockManager& blocks_;
  int32_t max_chunk_;
  std::vector<Sequence*> running_;  // sorted by rank
  WaitingQueue waiting_;
  std::vector<Sequence*> candidates_;  // of this step, in order
  std::vector<Sequence*> blocked_;     // found not to fit in this step
  int32_t used_slots_ = 0;
  int32_t budget_ = 0;
  int64_t waiting_tokens_ = 0;
  StepPlan plan_;
  SchedulerStats stats_;
};

}  // namespace kvring::replica
