#include "replica/server/engine_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/runtime/clock.h"
#include "common/runtime/log.h"

namespace kvring::replica {
namespace {

constexpr size_t kMaxInbox = 4096;
constexpr double kSmoothing = 0.1;  // weight of the newest step in the measured decode step
// The prefill rate is that of about so many tokens last computed, in steps of at least so many: smaller ones
// measure their fixed cost, not a rate.
constexpr double kPrefillMemoryTokens = 4096;
constexpr int32_t kMeasuredPrefillTokens = 128;

openai::ApiError ErrorOfAdd(const absl::Status& status, const std::string& token_field) {
  openai::ApiError error = openai::FromStatus(status);
  if (status.code() == absl::StatusCode::kOutOfRange) {
    error.code = "context_length_exceeded";
    error.param = token_field;
  } else if (status.code() == absl::StatusCode::kResourceExhausted) {
    error.code = "queue_full";
  }
  return error;
}

double Smooth(double mean, double sample) { return mean == 0 ? sample : mean + kSmoothing * (sample - mean); }

}  // namespace

EngineLoop::EngineLoop(Executor& executor, const EngineOptions& options, const ServedModel& model,
                       MetricRegistry& metrics)
    : engine_(executor, options),
      model_(model),
      block_size_(executor.limits().block_size),
      max_tokens_(engine_.max_tokens_per_sequence()),
      prompt_tokens_(
          metrics.GetCounter("kvring_replica_prompt_tokens_total", "Prompt tokens of admitted requests.")),
      cached_tokens_(metrics.GetCounter("kvring_replica_cached_tokens_total",
                                        "Prompt tokens found in the prefix cache at first admission.")),
      completion_tokens_(metrics.GetCounter("kvring_replica_completion_tokens_total",
                                            "Tokens generated for finished requests.")),
      requests_(metrics.GetCounter("kvring_replica_requests_total", "Requests submitted to the engine.")),
      typed_bos_(metrics.GetCounter("kvring_replica_typed_bos_total",
                                    "Prompts that bring the BOS which the model adds by itself.")),
      cancelled_(
          metrics.GetCounter("kvring_replica_cancelled_total", "Requests cancelled before their end.")),
      failed_(metrics.GetCounter("kvring_replica_failed_total", "Requests that ended with an error.")),
      preemptions_(
          metrics.GetCounter("kvring_replica_preemptions_total", "Sequences put back for lack of blocks.")),
      step_seconds_(
          metrics.GetHistogram("kvring_replica_step_seconds", "Duration of engine steps.", SecondsBounds())),
      engine_metrics_(metrics),
      thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  const openai::ApiError stopped{503, "server_error", "replica_stopping", "", "The replica is stopping."};
  for (auto& [id, generation] : running_) generation->Fail(stopped);
  absl::MutexLock lock(&mutex_);
  for (Command& command : inbox_) {
    if (command.start != nullptr) command.start->Fail(stopped);
    if (command.reset) command.reset(absl::UnavailableError(stopped.message));
  }
}

GenerationId EngineLoop::Submit(GenerationPlan plan, std::shared_ptr<GenerationSink> sink) {
  const GenerationId id{next_id_.fetch_add(1, std::memory_order_relaxed)};
  requests_.Add();
  typed_bos_.Add(static_cast<uint64_t>(plan.typed_bos));
  {
    absl::MutexLock lock(&mutex_);
    if (inbox_.size() < kMaxInbox && !stopping_) {
      in_flight_.fetch_add(1, std::memory_order_relaxed);
      inbox_.push_back(
          {id,
           std::make_unique<RunningGeneration>(std::move(plan), std::move(sink), model_, block_size_),
           {}});
      return id;
    }
  }
  failed_.Add();
  sink->OnError({429, "rate_limit_error", "queue_full", "", "The replica's queue is full."});
  return id;
}

void EngineLoop::Cancel(GenerationId id) {
  absl::MutexLock lock(&mutex_);
  inbox_.push_back({id, nullptr, {}});
}

void EngineLoop::ResetCache(std::function<void(absl::StatusOr<int64_t>)> done) {
  absl::MutexLock lock(&mutex_);
  inbox_.push_back({{}, nullptr, std::move(done)});
}

std::unique_ptr<EngineLoop::Listening> EngineLoop::Listen(StepListener& listener) {
  absl::MutexLock lock(&listener_mutex_);
  const uint64_t id = next_listener_++;
  listeners_.emplace(id, Listener{&listener});
  Cancel({});  // cancels nothing: an idle loop takes a turn, in which the listener is greeted
  return std::make_unique<Listening>(*this, id);
}

EngineLoop::Listening::~Listening() {
  absl::MutexLock lock(&loop_.listener_mutex_);
  loop_.listeners_.erase(id_);
}

LoopLoad EngineLoop::load() const {
  absl::MutexLock lock(&mutex_);
  return load_;
}

void EngineLoop::Run() {
  while (TakeCommands()) {
    if (engine_.HasWork()) StepOnce();
    HandleEvents();
    Notify();
  }
}

// Waits for commands when there is nothing else to do. False: stop.
bool EngineLoop::TakeCommands() {
  std::vector<Command> commands;
  {
    absl::MutexLock lock(&mutex_);
    auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !inbox_.empty(); };
    if (!engine_.HasWork()) mutex_.Await(absl::Condition(&ready));
    if (stopping_) return false;
    commands.swap(inbox_);
  }
  for (Command& command : commands) Apply(std::move(command));
  return true;
}

void EngineLoop::Apply(Command command) {
  if (command.start != nullptr) return Start(command.id, std::move(command.start));
  if (command.reset) {
    const int64_t dropped = engine_.Load().kv_cached_tokens;
    engine_.ClearCache();
    return command.reset(dropped);
  }
  const auto it = running_.find(command.id);
  if (it == running_.end()) return;
  for (RequestId request : it->second->requests()) engine_.Cancel(request);
  cancelled_.Add();
  Drop(command.id);
}

void EngineLoop::Start(GenerationId id, std::unique_ptr<RunningGeneration> generation) {
  RunningGeneration& started = *generation;
  running_.emplace(id, std::move(generation));
  for (size_t prompt = 0; prompt < started.prompts(); ++prompt) {
    const RequestId request{next_request_++};
    const absl::Status added = engine_.Add(started.TakeRequest(prompt, request), Now());
    if (added.ok()) {
      by_request_[request] = {id, prompt};
      continue;
    }
    for (RequestId earlier : started.requests()) engine_.Cancel(earlier);
    failed_.Add();
    started.Fail(ErrorOfAdd(added, started.token_field()));
    return Drop(id);
  }
}

void EngineLoop::Drop(GenerationId id) {
  const auto it = running_.find(id);
  for (RequestId request : it->second->requests()) by_request_.erase(request);
  running_.erase(it);
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
}

void EngineLoop::StepOnce() {
  const Instant begin = Now();
  const StepReport report = engine_.Step(begin);
  Measure(report, Now() - begin);
}

void EngineLoop::Measure(const StepReport& report, Duration elapsed) {
  step_seconds_.Observe(ToSeconds(elapsed));
  preemptions_.Add(static_cast<uint64_t>(report.preemptions));
  absl::MutexLock lock(&mutex_);
  if (report.prefill_tokens >= kMeasuredPrefillTokens && elapsed.count() > 0) {
    const double keep = std::exp(-report.prefill_tokens / kPrefillMemoryTokens);
    prefilled_tokens_ = prefilled_tokens_ * keep + report.prefill_tokens;
    prefill_seconds_ = prefill_seconds_ * keep + ToSeconds(elapsed);
    load_.prefill_tokens_per_second = prefilled_tokens_ / prefill_seconds_;
  } else if (report.prefill_tokens == 0 && report.decode_tokens > 0) {
    load_.decode_step_seconds = Smooth(load_.decode_step_seconds, ToSeconds(elapsed));
  }
}

void EngineLoop::HandleEvents() {
  // A stop string ends a choice, which makes further events: until there are none.
  for (std::vector<EngineEvent> events = engine_.TakeEvents(); !events.empty();
       events = engine_.TakeEvents()) {
    for (const EngineEvent& event : events) {
      const auto owner = by_request_.find(event.request);
      if (owner == by_request_.end()) continue;
      const auto [id, prompt] = owner->second;
      std::visit([&, id = id, prompt = prompt](const auto& what) { Handle(id, prompt, event.request, what); },
                 event.what);
    }
  }
}

void EngineLoop::Handle(GenerationId id, size_t, RequestId, const EngineEvent::Admitted& admitted) {
  prompt_tokens_.Add(static_cast<uint64_t>(admitted.prompt_tokens));
  cached_tokens_.Add(static_cast<uint64_t>(admitted.cached_tokens));
  running_.at(id)->OnAdmitted(admitted);
}

void EngineLoop::Handle(GenerationId id, size_t prompt, RequestId, const EngineEvent::PromptToken& token) {
  running_.at(id)->OnPromptToken(prompt, token);
}

void EngineLoop::Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Token& token) {
  if (running_.at(id)->OnToken(prompt, token)) engine_.Finish(request, token.choice);
}

void EngineLoop::Handle(GenerationId id, size_t prompt, RequestId, const EngineEvent::Finished& finished) {
  running_.at(id)->OnFinished(prompt, finished);
}

void EngineLoop::Handle(GenerationId id, size_t, RequestId, const EngineEvent::Done& done) {
  completion_tokens_.Add(static_cast<uint64_t>(done.usage.completion_tokens));
  if (running_.at(id)->OnDone(done)) Drop(id);
}

void EngineLoop::Handle(GenerationId id, size_t, RequestId, const EngineEvent::Failed& failed) {
  Log(LogLevel::kError, "replica", "step failed", {{"error", failed.status.ToString()}});
  RunningGeneration& generation = *running_.at(id);
  for (RequestId request : generation.requests()) engine_.Cancel(request);
  failed_.Add();
  generation.Fail(openai::InternalError());
  Drop(id);
}

void EngineLoop::Notify() {
  const EngineLoad engine_load = engine_.Load();
  engine_metrics_.Update(engine_load, engine_.cache_stats(), engine_.scheduler_stats());
  const CacheEventBatch events = engine_.TakeCacheEvents();
  LoopLoad load;
  {
    absl::MutexLock lock(&mutex_);
    load_.engine = engine_load;
    load = load_;
  }
  absl::MutexLock lock(&listener_mutex_);
  for (auto& [id, entry] : listeners_) {
    if (std::exchange(entry.greeted, true)) {
      entry.listener->OnStep(load, events);
      continue;
    }
    entry.listener->OnCacheSnapshot({events.first_sequence + events.events.size(), engine_.CacheSnapshot()});
    entry.listener->OnStep(load, {});
  }
}

}  // namespace kvring::replica
