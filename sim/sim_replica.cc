#include "sim/sim_replica.h"

#include <limits>

namespace kvring::sim {
namespace {

// Contents of spans are spread over 2^30 token ids.
constexpr int32_t kVocabulary = 1 << 30;

replica::ExecutorLimits LimitsOf(const SimReplicaOptions& options) {
  const auto blocks = static_cast<int32_t>(options.kv_tokens / options.block_tokens);
  return {.vocab_size = kVocabulary,
          .context_length = std::numeric_limits<int32_t>::max(),
          .block_size = options.block_tokens,
          .num_blocks = blocks};
}

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

// What the server's loop would measure: full steps of nothing but prefill.
double PrefillRate(const SimReplicaOptions& options) {
  const double tokens = options.scheduler.max_batch_tokens;
  return tokens / (options.cost.base_ns + tokens * options.cost.per_prefill_token_ns) * 1e9;
}

}  // namespace

SimReplica::SimReplica(const SimReplicaOptions& options)
    : prefill_tokens_per_second_(PrefillRate(options)),
      executor_(LimitsOf(options), options.cost),
      engine_(executor_, {.scheduler = options.scheduler}) {}

Duration SimReplica::Step(Instant now) {
  engine_.Step(now);
  return executor_.last_cost();
}

StepMessage SimReplica::TakeMessage() {
  StepMessage message{.events = engine_.TakeEvents()};
  const replica::CacheEventBatch batch = engine_.TakeCacheEvents();
  message.first_sequence = batch.first_sequence;
  message.cache_events.reserve(batch.events.size());
  for (const replica::CacheEvent& event : batch.events) {
    message.cache_events.push_back({KindOf(event.kind), event.hash, std::nullopt});
  }
  return message;
}

router::LoadReport SimReplica::Load() const {
  const replica::EngineLoad load = engine_.Load();
  return {.running = load.running,
          .waiting = load.waiting,
          .kv_used_tokens = load.kv_used_tokens,
          .kv_cached_tokens = load.kv_cached_tokens,
          .pending_prefill_tokens = load.pending_prefill_tokens,
          .prefill_tokens_per_second = prefill_tokens_per_second_,
          .decode_step_seconds = ToSeconds(executor_.last_cost())};
}

}  // namespace kvring::sim
