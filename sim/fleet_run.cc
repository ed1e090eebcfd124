#include "sim/fleet_run.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "sim/queue_replica.h"

namespace kvring::sim {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kProbeEvery = std::chrono::seconds(1);
constexpr Duration kSettling = std::chrono::seconds(30);  // for the last messages, after the last request

}  // namespace

FleetRun::FleetRun(const Trace& trace, const FleetOptions& options)
    : options_(options),
      grain_(options.fidelity == Fidelity::kQueue ? QueueGrain(options.replica.block_tokens) : 1),
      playback_(trace, options.replica.block_tokens, grain_),
      active_(trace.requests.size()),
      random_(MixBits(options.router.seed + 1)),
      left_(trace.requests.size()),
      sample_every_(std::max<Duration>(Totals(trace).last_arrival / kFleetSamples, kTick)) {
  for (int32_t i = 0; i < options.routers; ++i) {
    router::RouterConfig config = options.router;
    config.seed += static_cast<uint64_t>(i) << 32;
    routers_.push_back({router::Router::Create(config), {}});
    KVRING_CHECK(routers_.back().router != nullptr);
  }
  for (int32_t i = 0; i < options.replicas; ++i) AddReplica();
  events_.Push({1}, {Kind::kTick});
  for (uint32_t i = 0; i < options.faults.size(); ++i)
    events_.Push(Instant{1} + options.faults[i].at, {Kind::kFault, i});
  if (faulty()) events_.Push({1}, {Kind::kProbe});
}

FleetResult FleetRun::Run() {
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
  result_.makespan = now_ - Instant{1};
  Settle();
  FindViolations();
  Finish();
  return std::move(result_);
}

void FleetRun::Handle(const Payload& event) {
  switch (event.kind) {
    case Kind::kArrive:
      return Arrive(event.index);
    case Kind::kReach:
      return Reach(event.index, event.more);
    case Kind::kLost:
      if (Current(event.index, event.more)) Fail(event.index, router::OutcomeClass::kReplicaError);
      return;
    case Kind::kPatience:
      if (!Current(event.index, event.more) || active_[event.index]->first_token_seen) return;
      return Fail(event.index, router::OutcomeClass::kTimeout);
    case Kind::kStepEnd:
      return EndStep(event.index);
    case Kind::kReport:
      return Report(event.index);
    case Kind::kHear:
      return Hear(event.index);
    case Kind::kTell:
      return Tell(event.index);
    case Kind::kSnapshot:
      return TellSnapshot(event.index, event.more);
    case Kind::kProbe:
      Probe();
      return events_.Push(now_ + kProbeEvery, {Kind::kProbe});
    case Kind::kTick:
      Tick();
      return events_.Push(now_ + kTick, {Kind::kTick});
    case Kind::kFault:
      return Begin(options_.faults[event.index]);
    case Kind::kHeal:
      return Heal(options_.faults[event.index]);
  }
}

void FleetRun::Tick() {
  for (RouterNode& node : routers_) node.router->Tick(now_);
  if (now_ >= next_sample_) Sample();
}

void FleetRun::Sample() {
  next_sample_ = now_ + sample_every_;
  FleetSample& sample = result_.samples.emplace_back();
  sample.at = now_ - Instant{1};
  sample.prompt_tokens = admitted_tokens_;
  sample.cached_tokens = result_.cached_tokens;
  for (const Node& node : nodes_) sample.in_flight.push_back(static_cast<int32_t>(node.inside.size()));
}

// What is still on its way comes.
void FleetRun::Settle() {
  const Instant until = now_ + (faulty() ? kSettling : 2 * options_.network_delay);
  while (events_.next() <= until) {
    const auto event = events_.Pop();
    now_ = event.at;
    Handle(event.payload);
  }
}

void FleetRun::FindViolations() {
  const auto wrong = [&](const auto&... what) { result_.violations.push_back(absl::StrCat(what...)); };
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (const std::string fault = node.replica->CheckIntegrity(); !fault.empty())
      wrong("replica ", i, ": ", fault);
    if (!node.inside.empty()) wrong("replica ", i, ": ", node.inside.size(), " requests never ended");
    if (node.replica->HasWork()) wrong("replica ", i, ": works for nobody");
  }
  for (uint32_t r = 0; r < routers_.size(); ++r) {
    for (const router::ReplicaView& view : routers_[r].router->Replicas(now_)) {
      const uint32_t i = routers_[r].index_of.at(view.id);
      if (view.in_flight != 0 || view.pending_prefill_tokens != 0)
        wrong("router ", r, ", replica ", i, ": ", view.in_flight, " requests in flight when all have ended");
      const bool told = view.events.state == router::EventsState::kWhole && !nodes_[i].untold.contains(r) &&
                        nodes_[i].alive && view.epoch.value == EpochOf(i);
      const size_t holds = nodes_[i].replica->CacheSnapshot().blocks.size();
      // Fewer, where the first batches were lost: a router trusts what it hears from the first one on.
      if (told && view.events.blocks > holds)
        wrong("router ", r, ", replica ", i, ": ", view.events.blocks, " blocks told, ", holds, " held");
    }
  }
}

void FleetRun::Finish() {
  for (const Node& node : nodes_) {
    const ReplicaStats stats = node.replica->stats();
    result_.steps += stats.steps + node.ended.steps;
    result_.preemptions += stats.preemptions + node.ended.preemptions;
    result_.evictions += stats.evictions + node.ended.evictions;
  }
  result_.requests_of.resize(nodes_.size());
  result_.trace_hash = hash_;
  result_.warnings = routers_[0].router->Warnings();
}

}  // namespace kvring::sim
