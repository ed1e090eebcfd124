#include "sim/replica_model.h"

namespace kvring::sim {
namespace {

router::CacheEventKind KindOf(replica::CacheEvent::Kind kind) {
  switch (kind) {
    case replica::CacheEvent::Kind::kStored:
      return router::CacheEventKind::kStored;
    case replica::CacheEvent::Kind::kRemoved:
      return router::CacheEventKind::kRemoved;
    case replica::CacheEvent::Kind::kCleared:
      break;
  }
  return router::CacheEventKind::kCleared;
}

}  // namespace

double PrefillRate(const SimReplicaOptions& options, int32_t grain) {
  const double tokens = options.scheduler.max_batch_tokens;
  return tokens / grain / (options.cost.base_ns + tokens * options.cost.per_prefill_token_ns) * 1e9;
}

std::vector<router::CacheEvent> ToRouter(std::span<const replica::CacheEvent> events) {
  std::vector<router::CacheEvent> heard;
  heard.reserve(events.size());
  for (const replica::CacheEvent& event : events)
    heard.push_back({KindOf(event.kind), event.hash, std::nullopt});
  return heard;
}

}  // namespace kvring::sim
