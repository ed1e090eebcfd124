#include "sim/sim_replica.h"

#include <limits>
#include <variant>

#include "common/check.h"

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

// The engine's events as the fleet's; those that say nothing more are left out.
struct Translation {
  uint32_t request;
  std::vector<ReplicaEvent>& out;

  void operator()(const replica::EngineEvent::Admitted& e) const {
    out.push_back({.request = request,
                   .kind = ReplicaEvent::Kind::kAdmitted,
                   .prompt_tokens = e.prompt_tokens,
                   .cached_tokens = e.cached_tokens,
                   .queued = e.queued});
  }
  void operator()(const replica::EngineEvent::PromptToken&) const {}
  void operator()(const replica::EngineEvent::Token& e) const {
    out.push_back({.request = request, .kind = ReplicaEvent::Kind::kToken, .token = e.token});
  }
  void operator()(const replica::EngineEvent::Finished&) const {}
  void operator()(const replica::EngineEvent::Done& e) const {
    out.push_back({.request = request,
                   .kind = ReplicaEvent::Kind::kDone,
                   .prompt_tokens = e.usage.prompt_tokens,
                   .cached_tokens = e.usage.cached_tokens,
                   .output_tokens = e.usage.completion_tokens});
  }
  // A timed executor never fails.
  void operator()(const replica::EngineEvent::Failed&) const { KVRING_CHECK(false); }
};

}  // namespace

SimReplica::SimReplica(const SimReplicaOptions& options)
    : prefill_tokens_per_second_(PrefillRate(options, 1)),
      executor_(LimitsOf(options), options.cost),
      engine_(executor_, {.scheduler = options.scheduler}) {}

absl::Status SimReplica::Add(SimRequest request, Instant now) {
  return engine_.Add({.id = RequestId{uint64_t{request.index} + 1},
                      .prompt = std::move(request.prompt.ids),
                      .root = replica::MakeCacheRoot(kSimIdentity),
                      .max_tokens = request.output_tokens,
                      .ignore_eos = true,
                      .sampling = {.temperature = 0}},
                     now);
}

Duration SimReplica::Step(Instant now) {
  const replica::StepReport step = engine_.Step(now);
  if (step.prefill_tokens == 0 && step.decode_tokens > 0) decode_step_ = executor_.last_cost();
  return executor_.last_cost();
}

StepMessage SimReplica::TakeMessage() {
  StepMessage message;
  const std::vector<replica::EngineEvent> events = engine_.TakeEvents();
  message.events.reserve(events.size());
  for (const replica::EngineEvent& event : events)
    std::visit(Translation{static_cast<uint32_t>(event.request.value - 1), message.events}, event.what);
  const replica::CacheEventBatch batch = engine_.TakeCacheEvents();
  message.first_sequence = batch.first_sequence;
  message.cache_events = ToRouter(batch.events);
  next_sequence_ = batch.first_sequence + batch.events.size();
  return message;
}

// Between a step and its message the state is ahead of what was told; then it says so by telling it twice.
ReplicaModel::Snapshot SimReplica::CacheSnapshot() const {
  return {ToRouter(engine_.CacheSnapshot()), next_sequence_};
}

router::LoadReport SimReplica::Load() const {
  const replica::EngineLoad load = engine_.Load();
  return {.running = load.running,
          .waiting = load.waiting,
          .kv_used_tokens = load.kv_used_tokens,
          .kv_cached_tokens = load.kv_cached_tokens,
          .pending_prefill_tokens = load.pending_prefill_tokens,
          .prefill_tokens_per_second = prefill_tokens_per_second_,
          .decode_step_seconds = ToSeconds(decode_step_)};
}

ReplicaStats SimReplica::stats() const {
  return {.steps = engine_.scheduler_stats().steps,
          .preemptions = engine_.scheduler_stats().preemptions,
          .evictions = engine_.cache_stats().evictions};
}

}  // namespace kvring::sim
