// What shells tell the router of a replica and what operators see of it: specification, facts, load, cache
// events, view. Plain values; owned by whoever holds them.
#pragma once

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
  BlockHash parent;
};
struct CacheEventBatch {
  Epoch epoch;
  uint64_t first_sequence = 0;
  std::span<const CacheEvent> events;
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
  bool load_stale = true;  // no load report within the staleness bound: own counts are used
  uint64_t health_transitions = 0;
};

}  // namespace kvring::router
