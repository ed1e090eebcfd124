#include "sim/fleet_simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/random.h"
#include "router/fleet/prompt_key.h"
#include "sim/event_queue.h"
#include "sim/playback.h"
#include "sim/queue_replica.h"
#include "sim/sim_replica.h"

namespace kvring::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);

// One request between its arrival and its end. The router keeps pointers into `key` and `prompt`.
struct Active {
  Instant arrived;
  Instant first_token;
  History prompt;
  std::vector<TokenId> answer;
  router::PromptKey key;
  int64_t predicted = 0;
  uint32_t replica = 0;
  bool first_token_seen = false;
};

std::unique_ptr<ReplicaModel> MakeReplica(const FleetOptions& options) {
  if (options.fidelity == Fidelity::kQueue) return std::make_unique<QueueReplica>(options.replica);
  return std::make_unique<SimReplica>(options.replica);
}

}  // namespace

double FleetResult::hit_rate() const {
  return prompt_tokens == 0 ? 0 : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
}

double FleetResult::ceiling() const {
  return prompt_tokens == 0 ? 0 : static_cast<double>(ceiling_tokens) / static_cast<double>(prompt_tokens);
}

double FleetResult::max_over_mean() const {
  const auto sum = std::accumulate(requests_of.begin(), requests_of.end(), int64_t{0});
  if (sum == 0) return 0;
  const auto most = *std::max_element(requests_of.begin(), requests_of.end());
  return static_cast<double>(most) * static_cast<double>(requests_of.size()) / static_cast<double>(sum);
}

class FleetSimulation::Impl {
 public:
  Impl(const Trace& trace, const FleetOptions& options)
      : options_(options),
        grain_(options.fidelity == Fidelity::kQueue ? QueueGrain(options.replica.block_tokens) : 1),
        router_(router::Router::Create(options.router)),
        playback_(trace, options.replica.block_tokens, grain_),
        active_(trace.requests.size()),
        left_(trace.requests.size()),
        sample_every_(std::max<Duration>(Totals(trace).last_arrival / kFleetSamples, kTick)) {
    KVRING_CHECK(router_ != nullptr);
    for (int32_t i = 0; i < options.replicas; ++i) AddReplica(static_cast<uint32_t>(i));
    result_.requests_of.resize(static_cast<size_t>(options.replicas));
    events_.Push({1}, {Kind::kTick, 0});
  }

  FleetResult Run() {
    while (left_ > 0) {
      if (playback_.any() && playback_.next_at() <= events_.next()) {
        now_ = playback_.next_at();
        Arrive(playback_.TakeNext());
        continue;
      }
      const auto event = events_.Pop();
      now_ = event.at;
      Handle(event.payload);
    }
    for (const Node& node : nodes_) {
      const ReplicaStats stats = node.replica->stats();
      result_.steps += stats.steps;
      result_.preemptions += stats.preemptions;
      result_.evictions += stats.evictions;
    }
    result_.makespan = now_ - Instant{1};
    result_.trace_hash = hash_;
    result_.warnings = router_->Warnings();
    return std::move(result_);
  }

 private:
  enum class Kind : uint8_t { kArrive, kReach, kStepEnd, kReport, kHear, kTick };
  struct Payload {
    Kind kind;
    uint32_t index;  // of the request (kArrive, kReach) or of the replica
  };
  struct Node {
    std::unique_ptr<ReplicaModel> replica;
    ReplicaId id;
    bool busy = false;
    int32_t in_flight = 0;
    Instant step_end;   // an end at another time was overtaken
    Instant next_load;  // none is heard before
    bool report_due = false;
    std::deque<StepMessage> messages;  // on their way to the router
  };

  void AddReplica(uint32_t index) {
    Node& node = nodes_.emplace_back(Node{.replica = MakeReplica(options_)});
    node.id = router_->AddReplica({.url = "grpc://replica-" + std::to_string(index)}, now_);
    index_of_[node.id] = index;
    router_->OnReplicaFacts(node.id,
                            {.epoch = {MixBits(index + 1)},
                             .models = {std::string(kSimIdentity.model)},
                             .kv_tokens = options_.replica.kv_tokens / grain_,
                             .kv_source = router::CapacitySource::kRegistered,
                             .block_size = options_.replica.block_tokens / grain_},
                            now_);
    router_->OnProbe(node.id, true, now_);
  }

  void Handle(const Payload& event) {
    switch (event.kind) {
      case Kind::kArrive:
        return Arrive(event.index);
      case Kind::kReach:
        return Reach(event.index);
      case Kind::kStepEnd:
        return EndStep(event.index);
      case Kind::kReport:
        return Report(event.index);
      case Kind::kHear:
        return Hear(event.index);
      case Kind::kTick:
        router_->Tick(now_);
        if (now_ >= next_sample_) Sample();
        return events_.Push(now_ + kTick, {Kind::kTick, 0});
    }
  }

  void Sample() {
    next_sample_ = now_ + sample_every_;
    FleetSample& sample = result_.samples.emplace_back();
    sample.at = now_ - Instant{1};
    sample.prompt_tokens = admitted_tokens_;
    sample.cached_tokens = result_.cached_tokens;
    for (const Node& node : nodes_) sample.in_flight.push_back(node.in_flight);
  }

  void Arrive(uint32_t index) {
    const TraceRequest& request = playback_.request(index);
    active_[index] = std::make_unique<Active>();
    Active& active = *active_[index];
    active.arrived = now_;
    active.prompt = playback_.PromptOf(index);
    ++result_.requests;
    result_.prompt_tokens += active.prompt.tokens;
    active.key = router::MakePromptKey(kSimIdentity, std::span<const TokenId>(active.prompt.ids));
    result_.ceiling_tokens += playback_.CeilingOf(active.prompt, active.key);
    router::RequestView view{.id = IdOf(index),
                             .model = kSimIdentity.model,
                             .prompt = &active.key,
                             .max_output_tokens = (request.output_tokens + grain_ - 1) / grain_};
    if (options_.session_keys && request.session != 0) {
      view.session = SessionKey{MixBits(request.session)};
      view.session_source = router::SessionSource::kHeader;
    }
    const router::Decision decision = router_->OnRequest(view, now_);
    if (!decision.replica) return Refuse(index, router::OutcomeClass::kRefused);
    router_->OnDispatch(view.id, now_);
    active.predicted = decision.predicted_cached_tokens * grain_;
    active.replica = index_of_.at(*decision.replica);
    ++nodes_[active.replica].in_flight;
    Note(index, active.replica);
    events_.Push(now_ + options_.network_delay, {Kind::kReach, index});
  }

  void Reach(uint32_t index) {
    Active& active = *active_[index];
    Node& node = nodes_[active.replica];
    const absl::Status added = node.replica->Add({.index = index,
                                                  .prompt = active.prompt,
                                                  .output_tokens = playback_.request(index).output_tokens,
                                                  .answer_content = Playback::AnswerContent(index)},
                                                 now_);
    if (!added.ok()) {
      --node.in_flight;
      return Refuse(index, router::OutcomeClass::kClientError);
    }
    if (!node.busy) return Step(node, active.replica);
    if (const auto end = node.replica->Interrupt(now_)) EndStepAt(node, active.replica, *end);
  }

  void Refuse(uint32_t index, router::OutcomeClass outcome) {
    ++result_.refused;
    router_->OnComplete(IdOf(index), {.outcome = outcome}, now_);
    End(index);
  }

  void Step(Node& node, uint32_t index) {
    node.busy = node.replica->HasWork();
    if (node.busy) EndStepAt(node, index, now_ + node.replica->Step(now_));
  }
  void EndStepAt(Node& node, uint32_t index, Instant end) {
    node.step_end = end;
    events_.Push(end, {Kind::kStepEnd, index});
  }

  void EndStep(uint32_t index) {
    Node& node = nodes_[index];
    if (!node.busy || node.step_end != now_) return;
    Send(node, index, node.replica->TakeMessage());
    Step(node, index);
  }

  void Send(Node& node, uint32_t index, StepMessage message) {
    const Instant heard = now_ + options_.network_delay;
    if (heard >= node.next_load) {
      message.load = node.replica->Load();
      node.next_load = heard + options_.load_report_every;
    } else if (options_.fidelity == Fidelity::kQueue && !std::exchange(node.report_due, true)) {
      // The next step's end may be far; what is told then stays true until it.
      events_.Push(node.next_load - options_.network_delay, {Kind::kReport, index});
    }
    node.messages.push_back(std::move(message));
    events_.Push(heard, {Kind::kHear, index});
  }

  void Report(uint32_t index) {
    Node& node = nodes_[index];
    node.report_due = false;
    if (node.busy && now_ + options_.network_delay >= node.next_load) Send(node, index, {});
  }

  void Hear(uint32_t index) {
    Node& node = nodes_[index];
    StepMessage message = std::move(node.messages.front());
    node.messages.pop_front();
    if (options_.cache_events && !message.cache_events.empty()) {
      router_->OnCacheEvents(node.id,
                             {.epoch = {MixBits(index + 1)},
                              .first_sequence = message.first_sequence,
                              .events = message.cache_events},
                             now_);
    }
    if (message.load) router_->OnLoadReport(node.id, *message.load, now_);
    for (const ReplicaEvent& event : message.events) Take(event);
  }

  void Take(const ReplicaEvent& event) {
    switch (event.kind) {
      case ReplicaEvent::Kind::kAdmitted:
        return TakeAdmission(event);
      case ReplicaEvent::Kind::kToken:
        return TakeToken(event);
      case ReplicaEvent::Kind::kDone:
        return TakeEnd(event);
    }
  }

  void TakeAdmission(const ReplicaEvent& event) {
    const Active& active = *active_[event.request];
    router_->OnAdmitted(
        IdOf(event.request),
        {.prompt_tokens = IdsOf(event.prompt_tokens), .cached_tokens = IdsOf(event.cached_tokens)}, now_);
    result_.queued.Record(event.queued.count());
    admitted_tokens_ += event.prompt_tokens;
    result_.cached_tokens += event.cached_tokens;
    result_.predicted_tokens += active.predicted;
    result_.predictions_exact += active.predicted == event.cached_tokens;
    Note(event.request, static_cast<uint64_t>(event.cached_tokens));
  }

  void TakeToken(const ReplicaEvent& event) {
    Active& active = *active_[event.request];
    if (options_.fidelity == Fidelity::kStep) active.answer.push_back(event.token);
    if (std::exchange(active.first_token_seen, true)) return;
    active.first_token = now_;
    router_->OnFirstToken(IdOf(event.request), now_);
    result_.ttft.Record((now_ - active.arrived).count());
  }

  void TakeEnd(const ReplicaEvent& event) {
    const Active& active = *active_[event.request];
    const TraceRequest& request = playback_.request(event.request);
    router_->OnComplete(IdOf(event.request),
                        {.usage = router::UsageReport{.prompt_tokens = IdsOf(event.prompt_tokens),
                                                      .completion_tokens = IdsOf(event.output_tokens),
                                                      .cached_tokens = IdsOf(event.cached_tokens)}},
                        now_);
    result_.output_tokens += event.output_tokens;
    result_.latency.Record((now_ - active.arrived).count());
    if (event.output_tokens > 1)
      result_.itl.Record((now_ - active.first_token).count() / (event.output_tokens - 1));
    ++result_.requests_of[active.replica];
    --nodes_[active.replica].in_flight;
    if (request.after >= 0) {
      ++result_.follow_ups;
      result_.follow_ups_on_same += playback_.ReplicaBefore(event.request) == active.replica;
    }
    End(event.request);
  }

  // The request is over: its follow-ups come after their waits.
  void End(uint32_t index) {
    Active& active = *active_[index];
    History history = std::move(active.prompt);
    if (options_.fidelity == Fidelity::kStep) {
      history.ids.insert(history.ids.end(), active.answer.begin(), active.answer.end());
      history.tokens = std::ssize(history.ids);
    } else {
      history.Append({Playback::AnswerContent(index), playback_.request(index).output_tokens}, grain_);
    }
    for (const auto& next : playback_.End(index, std::move(history), active.replica))
      events_.Push(now_ + next.pause, {Kind::kArrive, next.index});
    active_[index].reset();
    --left_;
  }

  int32_t IdsOf(int32_t tokens) const { return (tokens + grain_ - 1) / grain_; }
  static RequestId IdOf(uint32_t index) { return RequestId{uint64_t{index} + 1}; }
  void Note(uint64_t what, uint64_t value) {
    hash_ = MixBits(hash_ ^ MixBits(what) ^ (value << 32) ^ static_cast<uint64_t>(now_.ns));
  }

  const FleetOptions options_;
  const int32_t grain_;  // tokens per id
  std::unique_ptr<router::Router> router_;
  Playback playback_;
  std::deque<Node> nodes_;
  std::map<ReplicaId, uint32_t> index_of_;
  std::vector<std::unique_ptr<Active>> active_;  // by request; those under way
  EventQueue<Payload> events_;
  Instant now_{1};
  size_t left_;
  const Duration sample_every_;
  Instant next_sample_;
  int64_t admitted_tokens_ = 0;
  uint64_t hash_ = 0;
  FleetResult result_;
};

FleetSimulation::FleetSimulation(const Trace& trace, const FleetOptions& options)
    : impl_(std::make_unique<Impl>(trace, options)) {}
FleetSimulation::~FleetSimulation() = default;
FleetResult FleetSimulation::Run() { return impl_->Run(); }

}  // namespace kvring::sim
