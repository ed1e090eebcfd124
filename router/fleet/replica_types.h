// What shells tell the router of a replica and what operators see of it: specification, facts, load, cache
// events, view. Plain values; owned by whoever holds them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/block_hash.h"
#include "common/ids.h"
#include "common/instant.h"

namespace kvring::router {

enum class CapacitySource { kUnknown, kConfig, kRegistered, kMetrics, kLearnt };
/// "unknown", "config", "registered", "metrics", "learnt".
std::string_view CapacitySourceName(CapacitySource source);

struct ReplicaSpec {
  std::string url;                  // identity of the place: http://… or grpc://…; the ring hashes it
  std::vector<std::string> models;  // empty until known
  double weight = 1;
  int64_t kv_tokens = 0;  // 0: unknown
  CapacitySource kv_source = CapacitySource::kUnknown;
};

/// What a replica says of itself once connected.
struct ReplicaFacts {
  Epoch epoch;
  std::vector<std::string> models;
  int64_t kv_tokens = 0;
  CapacitySource kv_source = CapacitySource::kUnknown;
  int32_t block_size = 0;      // tokens per engine block; 0: unknown
  int32_t context_length = 0;  // 0: unknown
  bool draining = false;
};

struct LoadReport {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t kv_used_tokens = 0;
  int64_t kv_cached_tokens = 0;
  int64_t pending_prefill_tokens = 0;
  double prefill_tokens_per_second = 0;  // 0: unknown
  double decode_step_seconds = 0;        // 0: unknown
};

enum class CacheEventKind { kStored, kRemoved, kCleared };
struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kStored;
  BlockHash block;
  std::optional<BlockHash> parent;  // must be known, where it is told; the first block of a chain has none
};

/// How a batch goes on from the ones before it.
enum class BatchStart {
  kFollows,   // its sequence numbers say
  kSnapshot,  // its events are all that is held
  kResumes,   // what came before is lost and nobody can repeat it
};
struct CacheEventBatch {
  Epoch epoch;
  uint64_t first_sequence = 0;
  std::span<const CacheEvent> events;
  BatchStart start = BatchStart::kFollows;
  uint64_t numbers = 0;      // sequence numbers that it takes; 0: one per event
  int32_t block_tokens = 0;  // tokens per block; 0: as the replica's facts say
};

/// What became of a batch.
enum class BatchFate {
  kApplied,
  kIgnored,  // a repeat, or of another life
  kGap,      // something is missing: nothing told counts until a batch from `wanted` on, or another start
};
struct EventsTaken {
  BatchFate fate = BatchFate::kApplied;
  uint64_t wanted = 0;  // with kGap: the first sequence number that is missing
};

/// How far the replica's own word about its cache is known.
enum class EventsState { kNone, kWhole, kPartial, kMissing };
/// "none", "whole", "partial" (true, but not all of it), "missing" (a gap: nothing is believed).
std::string_view EventsStateName(EventsState state);
struct EventsView {
  EventsState state = EventsState::kNone;
  int32_t block_tokens = 0;
  uint64_t blocks = 0;
  uint64_t gaps = 0;
  uint64_t repeats = 0;  // batches that had come before
};

enum class ReplicaState { kStarting, kUp, kDown, kEjected, kDraining };
std::string_view ReplicaStateName(ReplicaState state);

/// One replica as operators see it.
struct ReplicaView {
  ReplicaId id;
  std::string name;  // opaque and stable over restarts of the router: "r-" and 8 hex digits of the URL's hash
  std::string url;
  std::vector<std::string> models;
  ReplicaState state = ReplicaState::kStarting;
  Epoch epoch;
  double weight = 1;
  int32_t in_flight = 0;
  int64_t pending_prefill_tokens = 0;
  int64_t kv_capacity_tokens = 0;
  CapacitySource kv_source = CapacitySource::kUnknown;
  int64_t indexed_tokens = 0;
  uint64_t requests = 0;
  uint64_t failures = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  double prefill_tokens_per_second = 0;
  bool load_stale = true;    // no load report within the staleness bound: own counts are used
  uint64_t load_errors = 0;  // times that its load could not be read
  uint64_t health_transitions = 0;
  int32_t block_size = 0;  // tokens per engine block; 0: not told
  EventsView events;
};

}  // namespace kvring::router
