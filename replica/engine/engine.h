// Engine: requests in, tokens out, on one Executor. Continuous batching with chunked prefill (Scheduler),
// paged KV with prefix reuse (BlockManager), sampling (Sampler). The caller's loop, all on one thread:
//
//   engine.Add(request, now); …            any number; refuses at once what can never be served
//   engine.Step(now);                      one Execute, or nothing when there is no work
//   for (event : engine.TakeEvents()) …    detokenise; stop string found: engine.Finish(request, choice)
//
// A token is emitted in the step that computed it and the next one is not begun, so Finish counts exactly.
// Same requests, same seeds, same calls: same events. Pure; not thread-safe; the executor must outlive the
// engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/instant.h"
#include "replica/engine/executor.h"
#include "replica/engine/request.h"
#include "replica/engine/sampler.h"
#include "replica/engine/scheduler.h"
#include "replica/engine/sequence.h"
#include "replica/kv/block_manager.h"

namespace kvring::replica {

struct EngineOptions {
  SchedulerOptions scheduler;
  bool prefix_caching = true;
  /// A request whose prompt fits but whose max_tokens does not: capped to what fits instead of refused.
  bool cap_max_tokens = false;
  size_t cache_event_capacity = 1 << 16;
  uint64_t cache_key = 0;  // see BlockManagerOptions
  HostTierOptions host_tier;
  BlockManagerOptions::ChainFunction chain = nullptr;
};

struct EngineLoad {
  int32_t running = 0;  // sequences
  int32_t waiting = 0;
  int64_t kv_used_tokens = 0;          // slots of blocks held by sequences
  int64_t kv_cached_tokens = 0;        // held for reuse, evictable
  int64_t kv_host_tier_tokens = 0;     // kept in the host tier
  int64_t pending_prefill_tokens = 0;  // of running and waiting sequences
};

/// What one step did.
struct StepReport {
  int32_t prefill_tokens = 0;
  int32_t decode_tokens = 0;
  int32_t sequences = 0;
  int32_t preemptions = 0;
};

class Engine {
 public:
  Engine(Executor& executor, const EngineOptions& options);

  /// InvalidArgument: a field is out of range (named). OutOfRange: context_length_exceeded, with limit,
  /// prompt and requested counts. ResourceExhausted: the waiting queue is full. AlreadyExists: the id is in
  /// use.
  absl::Status Add(EngineRequest request, Instant now);

  /// Ends the request, frees its blocks; no events come after. Its usage so far; nullopt for an unknown id.
  std::optional<EngineUsage> Cancel(RequestId id);

  /// The caller found a stop string: the choice ends with kStop. Finished, and Done after the last choice,
  /// come with the next TakeEvents, which needs no Step. False, and nothing done, when the choice is unknown
  /// or has ended by itself (its Finished event is out already).
  bool Finish(RequestId id, int32_t choice);

  /// Plans and executes one batch. An executor's error ends the batch's requests with Failed; the engine goes
  /// on.
  StepReport Step(Instant now);

  /// True while Step would have something to do.
  bool HasWork() const { return !requests_.empty(); }

  std::vector<EngineEvent> TakeEvents();
  CacheEventBatch TakeCacheEvents() { return blocks_.events().Take(); }
  /// See BlockManager::Snapshot.
  std::vector<CacheEvent> CacheSnapshot() const { return blocks_.Snapshot(); }
  /// Forgets all prefixes.
  void ClearCache() { blocks_.Clear(); }

  EngineLoad Load() const;
  /// Longest prompt + output: the model's context or the whole pool, whichever is less; the context alone
  /// when the model has a window for which the pool has room.
  int32_t max_tokens_per_sequence() const { return limit_; }
  const BlockManagerStats& cache_stats() const { return blocks_.stats(); }
  const SchedulerStats& scheduler_stats() const { return scheduler_.stats(); }
  /// BlockManager::CheckIntegrity against every sequence's table.
  std::string CheckIntegrity() const;

 private:
  Sequence& AddChoice(ActiveRequest& request, int32_t choice);
  StepReport BuildBatch(const StepPlan& plan);
  void ReportAdmissions(const StepPlan& plan, Instant now);
  absl::Status CheckOutput() const;
  void HandleOutput(const StepPlan& plan);
  void EmitPromptRows(Sequence& sequence, int32_t first_row, int32_t rows);
  void AdvanceChoices(Sequence& sequence, int32_t row);
  void Fork(Sequence& first);
  void SampleToken(Sequence& sequence, int32_t row);
  void AcceptToken(Sequence& sequence, TokenId token, int32_t row);
  std::span<const TokenId> BannedTokens(const Sequence& sequence) const;
  std::optional<TokenLogprobs> LogprobsOf(const ActiveRequest& request, TokenId token, int32_t row);
  void FinishSequence(Sequence& sequence, FinishReason reason);
  void Fail(ActiveRequest& request, const absl::Status& status);
  void Emit(const ActiveRequest& request, EngineEvent::Kind what);
  void DropEnded();
  std::span<const float> Row(int32_t row) const;

  Executor& executor_;
  EngineOptions options_;
  BlockManager blocks_;
  Scheduler scheduler_;
  Sampler sampler_;
  int32_t limit_;
  absl::flat_hash_map<RequestId, std::unique_ptr<ActiveRequest>> requests_;  // look-up only
  std::vector<RequestId> ended_;
  uint64_t next_sequence_ = 1;
  uint64_t next_arrival_ = 1;
  Batch batch_;
  int32_t rows_ = 0;  // of logits that the batch asks for
  StepOutput output_;
  std::vector<EngineEvent> events_;
};

}  // namespace kvring::replica
