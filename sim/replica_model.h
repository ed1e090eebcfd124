// ReplicaModel: what a replica is to a simulated fleet. Its owner hands it requests and steps it; what a step
// did comes out at the step's end, as messages of a replica to a router. Two fidelities:
//
//   SimReplica     step   the real engine: every step of it
//   QueueReplica   queue  the real block manager; steps that only decode are taken many at a time
//
// Router and replica count in ids; `grain` tokens of the trace are one id (1 at step fidelity). Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/instant.h"
#include "replica/engine/scheduler.h"
#include "router/fleet/replica_types.h"
#include "sim/timed_executor.h"
#include "sim/trace.h"

namespace kvring::sim {

struct SimReplicaOptions {
  int64_t kv_tokens = 0;
  int32_t block_tokens = 16;
  StepCostModel cost;
  replica::SchedulerOptions scheduler;
};

/// One request as it reaches a replica.
struct SimRequest {
  uint32_t index = 0;           // in the trace
  History prompt;               // what is to be prefilled
  int32_t output_tokens = 0;    // that it generates; 0: the prompt is computed, nothing more
  uint64_t answer_content = 0;  // of the span it generates, where the model does not make tokens itself
};

/// What happened to one request.
struct ReplicaEvent {
  enum class Kind : uint8_t {
    kAdmitted,  // prompt_tokens, cached_tokens, queued
    kToken,     // token; at queue fidelity only the first one is told
    kDone,      // prompt_tokens, cached_tokens, output_tokens
  };
  uint32_t request = 0;
  Kind kind = Kind::kAdmitted;
  TokenId token = 0;
  int32_t prompt_tokens = 0;  // in tokens of the trace, as those below
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
  Duration queued{};
};

/// What a step says to the router, once it has ended.
struct StepMessage {
  std::vector<ReplicaEvent> events;
  uint64_t first_sequence = 0;
  std::vector<router::CacheEvent> cache_events;
  std::optional<router::LoadReport> load;  // where one is due
};

struct ReplicaStats {
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t evictions = 0;
};

class ReplicaModel {
 public:
  virtual ~ReplicaModel() = default;

  /// OutOfRange: it can never fit. ResourceExhausted: too many wait.
  virtual absl::Status Add(SimRequest request, Instant now) = 0;
  virtual bool HasWork() const = 0;
  /// Takes one step, or several that are alike, which last this long.
  virtual Duration Step(Instant now) = 0;
  /// A request came while a run of several steps was under way: the run's new end, the first at or after
  /// `now` at which a step ends. Nothing where the end stays.
  virtual std::optional<Instant> Interrupt(Instant now) = 0;
  /// Of the step that has ended.
  virtual StepMessage TakeMessage() = 0;
  /// Ends a request, if it is here; nothing more is said of it.
  virtual void Cancel(uint32_t index) = 0;
  /// All blocks it holds for reuse, and the number of the next event.
  struct Snapshot {
    std::vector<router::CacheEvent> blocks;
    uint64_t next_sequence = 0;
  };
  virtual Snapshot CacheSnapshot() const = 0;
  /// In ids.
  virtual router::LoadReport Load() const = 0;

  /// A fault that cannot be: an error in its accounts. Empty when all is well.
  virtual std::string CheckIntegrity() const = 0;
  virtual ReplicaStats stats() const = 0;
};

/// What the server's loop would measure: ids a second, in full steps of nothing but prefill.
double PrefillRate(const SimReplicaOptions& options, int32_t grain);
/// As a router hears them.
std::vector<router::CacheEvent> ToRouter(std::span<const replica::CacheEvent> events);

}  // namespace kvring::sim
