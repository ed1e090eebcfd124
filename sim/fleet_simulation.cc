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
#include "sim/infinite_cache.h"

namespace kvring::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);

// One request between its arrival and its end. The router keeps pointers into `key` and `prompt`.
struct Active {
  Instant arrived;
  std::vector<TokenId> prompt;
  std::vector<TokenId> answer;
  router::PromptKey key;
  int64_t predicted = 0;
  uint32_t replica = 0;
  bool first_token_seen = false;
};

// What follow-up turns go on from, until the last of them has ended.
struct Ended {
  std::vector<TokenId> history;
  uint32_t replica = 0;
  size_t followers = 0;
};

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
      : trace_(trace),
        options_(options),
        router_(router::Router::Create(options.router)),
        infinite_(options.replica.block_tokens),
        followers_(Followers(trace)),
        arrivals_(Arrivals(trace)),
        active_(trace.requests.size()) {
    KVRING_CHECK(router_ != nullptr);
    for (int32_t i = 0; i < options.replicas; ++i) AddReplica(static_cast<uint32_t>(i));
    result_.requests_of.resize(static_cast<size_t>(options.replicas));
    events_.Push({1}, {Kind::kTick, 0});
  }

  FleetResult Run() {
    while (left_ > 0) {
      if (next_arrival_ < arrivals_.size() && ArrivalOf(next_arrival_) <= events_.next()) {
        now_ = ArrivalOf(next_arrival_);
        Arrive(arrivals_[next_arrival_++]);
        continue;
      }
      const auto event = events_.Pop();
      now_ = event.at;
      Handle(event.payload);
    }
    for (const Node& node : nodes_) {
      result_.preemptions += node.replica.scheduler_stats().preemptions;
      result_.evictions += node.replica.evictions();
    }
    result_.makespan = now_ - Instant{1};
    result_.trace_hash = hash_;
    result_.warnings = router_->Warnings();
    return std::move(result_);
  }

 private:
  enum class Kind : uint8_t { kArrive, kReach, kStepEnd, kHear, kTick };
  struct Payload {
    Kind kind;
    uint32_t index;  // of the request (kArrive, kReach) or of the replica
  };
  struct Node {
    explicit Node(const SimReplicaOptions& options) : replica(options) {}
    SimReplica replica;
    ReplicaId id;
    bool busy = false;
    Instant next_load;                 // none is heard before
    std::deque<StepMessage> messages;  // on their way to the router
  };

  static std::multimap<int64_t, uint32_t> Followers(const Trace& trace) {
    std::multimap<int64_t, uint32_t> followers;
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      const int64_t after = trace.requests[i].after;
      if (after >= 0) followers.emplace(after, static_cast<uint32_t>(i));
    }
    return followers;
  }

  // Requests that wait for nobody, by arrival. Kept out of the event queue, which stays as small as the
  // fleet.
  static std::vector<uint32_t> Arrivals(const Trace& trace) {
    std::vector<uint32_t> arrivals;
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      if (trace.requests[i].after < 0) arrivals.push_back(static_cast<uint32_t>(i));
    }
    std::ranges::stable_sort(arrivals, {}, [&](uint32_t i) { return trace.requests[i].arrival; });
    return arrivals;
  }
  Instant ArrivalOf(size_t next) const { return Instant{1} + trace_.requests[arrivals_[next]].arrival; }

  void AddReplica(uint32_t index) {
    Node& node = nodes_.emplace_back(options_.replica);
    node.id = router_->AddReplica({.url = "grpc://replica-" + std::to_string(index)}, now_);
    index_of_[node.id] = index;
    router_->OnReplicaFacts(node.id,
                            {.epoch = {MixBits(index + 1)},
                             .models = {std::string(kSimIdentity.model)},
                             .kv_tokens = options_.replica.kv_tokens,
                             .kv_source = router::CapacitySource::kRegistered,
                             .block_size = options_.replica.block_tokens},
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
      case Kind::kHear:
        return Hear(event.index);
      case Kind::kTick:
        router_->Tick(now_);
        return events_.Push(now_ + kTick, {Kind::kTick, 0});
    }
  }

  void Arrive(uint32_t index) {
    const TraceRequest& request = trace_.requests[index];
    active_[index] = std::make_unique<Active>();
    Active& active = *active_[index];
    active.arrived = now_;
    if (request.continues) active.prompt = ended_.at(request.after).history;
    for (const PromptSpan& span : trace_.spans_of(request)) AppendTokens(span, active.prompt);
    ++result_.requests;
    result_.prompt_tokens += static_cast<int64_t>(active.prompt.size());
    active.key = router::MakePromptKey(kSimIdentity, std::span<const TokenId>(active.prompt));
    result_.ceiling_tokens += infinite_.Look(active.prompt, active.key);
    router::RequestView view{.id = IdOf(index),
                             .model = kSimIdentity.model,
                             .prompt = &active.key,
                             .max_output_tokens = request.output_tokens};
    if (options_.session_keys && request.session != 0) {
      view.session = SessionKey{MixBits(request.session)};
      view.session_source = router::SessionSource::kHeader;
    }
    const router::Decision decision = router_->OnRequest(view, now_);
    if (!decision.replica) return Refuse(index, router::OutcomeClass::kRefused);
    router_->OnDispatch(view.id, now_);
    active.predicted = decision.predicted_cached_tokens;
    active.replica = index_of_.at(*decision.replica);
    Note(index, active.replica);
    events_.Push(now_ + options_.network_delay, {Kind::kReach, index});
  }

  void Reach(uint32_t index) {
    const TraceRequest& request = trace_.requests[index];
    Active& active = *active_[index];
    Node& node = nodes_[active.replica];
    const absl::Status added = node.replica.Add({.id = IdOf(index),
                                                 .prompt = active.prompt,
                                                 .root = replica::MakeCacheRoot(kSimIdentity),
                                                 .max_tokens = request.output_tokens,
                                                 .ignore_eos = true,
                                                 .sampling = {.temperature = 0}},
                                                now_);
    if (!added.ok()) return Refuse(index, router::OutcomeClass::kClientError);
    if (!node.busy) Step(node, active.replica);
  }

  void Refuse(uint32_t index, router::OutcomeClass outcome) {
    ++result_.refused;
    router_->OnComplete(IdOf(index), {.outcome = outcome}, now_);
    End(index);
  }

  void Step(Node& node, uint32_t index) {
    node.busy = node.replica.HasWork();
    if (!node.busy) return;
    ++result_.steps;
    events_.Push(now_ + node.replica.Step(now_), {Kind::kStepEnd, index});
  }

  void EndStep(uint32_t index) {
    Node& node = nodes_[index];
    StepMessage& message = node.messages.emplace_back(node.replica.TakeMessage());
    const Instant heard = now_ + options_.network_delay;
    if (heard >= node.next_load) {
      message.load = node.replica.Load();
      node.next_load = heard + options_.load_report_every;
    }
    events_.Push(heard, {Kind::kHear, index});
    Step(node, index);
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
    for (const replica::EngineEvent& event : message.events) {
      const auto request = static_cast<uint32_t>(event.request.value - 1);
      std::visit([&](const auto& what) { Take(request, what); }, event.what);
    }
  }

  void Take(uint32_t index, const replica::EngineEvent::Admitted& admitted) {
    Active& active = *active_[index];
    router_->OnAdmitted(IdOf(index),
                        {.prompt_tokens = admitted.prompt_tokens, .cached_tokens = admitted.cached_tokens},
                        now_);
    result_.queued.Record(admitted.queued.count());
    result_.cached_tokens += admitted.cached_tokens;
    result_.predicted_tokens += active.predicted;
    result_.predictions_exact += active.predicted == admitted.cached_tokens;
    Note(index, static_cast<uint64_t>(admitted.cached_tokens));
  }
  void Take(uint32_t, const replica::EngineEvent::PromptToken&) {}
  void Take(uint32_t index, const replica::EngineEvent::Token& token) {
    Active& active = *active_[index];
    active.answer.push_back(token.token);
    if (std::exchange(active.first_token_seen, true)) return;
    router_->OnFirstToken(IdOf(index), now_);
    result_.ttft.Record((now_ - active.arrived).count());
  }
  void Take(uint32_t, const replica::EngineEvent::Finished&) {}
  void Take(uint32_t index, const replica::EngineEvent::Done& done) {
    Active& active = *active_[index];
    const auto* answer = reinterpret_cast<const char*>(active.answer.data());
    router_->OnComplete(
        IdOf(index),
        {.usage = router::UsageReport{.prompt_tokens = done.usage.prompt_tokens,
                                      .completion_tokens = done.usage.completion_tokens,
                                      .cached_tokens = done.usage.cached_tokens,
                                      .generated_bytes = {answer, active.answer.size() * sizeof(TokenId)}}},
        now_);
    result_.output_tokens += done.usage.completion_tokens;
    result_.latency.Record((now_ - active.arrived).count());
    ++result_.requests_of[active.replica];
    const TraceRequest& request = trace_.requests[index];
    if (request.after >= 0) {
      ++result_.follow_ups;
      result_.follow_ups_on_same += ended_.at(request.after).replica == active.replica;
    }
    End(index);
  }
  // A timed executor never fails.
  void Take(uint32_t, const replica::EngineEvent::Failed&) { KVRING_CHECK(false); }

  // The request is over: its follow-ups come after their waits.
  void End(uint32_t index) {
    Active& active = *active_[index];
    const int64_t after = trace_.requests[index].after;
    if (after >= 0 && --ended_.at(after).followers == 0) ended_.erase(after);
    const auto [first, last] = followers_.equal_range(index);
    for (auto it = first; it != last; ++it)
      events_.Push(now_ + trace_.requests[it->second].arrival, {Kind::kArrive, it->second});
    if (first != last) {
      active.prompt.insert(active.prompt.end(), active.answer.begin(), active.answer.end());
      // The last token of an answer has no place in the cache yet.
      infinite_.Add(std::span(active.prompt).first(active.prompt.size() - !active.answer.empty()));
      ended_[index] = {std::move(active.prompt), active.replica,
                       static_cast<size_t>(std::distance(first, last))};
    }
    active_[index].reset();
    --left_;
  }

  static RequestId IdOf(uint32_t index) { return RequestId{uint64_t{index} + 1}; }
  void Note(uint64_t what, uint64_t value) {
    hash_ = MixBits(hash_ ^ MixBits(what) ^ (value << 32) ^ static_cast<uint64_t>(now_.ns));
  }

  const Trace& trace_;
  const FleetOptions options_;
  std::unique_ptr<router::Router> router_;
  InfiniteCache infinite_;
  const std::multimap<int64_t, uint32_t> followers_;
  const std::vector<uint32_t> arrivals_;
  size_t next_arrival_ = 0;
  std::deque<Node> nodes_;
  std::map<ReplicaId, uint32_t> index_of_;
  std::vector<std::unique_ptr<Active>> active_;  // by request; those under way
  std::map<int64_t, Ended> ended_;
  EventQueue<Payload> events_;
  Instant now_{1};
  size_t left_ = trace_.requests.size();
  uint64_t hash_ = 0;
  FleetResult result_;
};

FleetSimulation::FleetSimulation(const Trace& trace, const FleetOptions& options)
    : impl_(std::make_unique<Impl>(trace, options)) {}
FleetSimulation::~FleetSimulation() = default;
FleetResult FleetSimulation::Run() { return impl_->Run(); }

}  // namespace kvring::sim
