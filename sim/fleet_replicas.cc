// FleetRun: replicas, their steps, and what they tell routers.
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/fleet_run.h"
#include "sim/queue_replica.h"
#include "sim/sim_replica.h"

namespace kvring::sim {
namespace {

std::unique_ptr<ReplicaModel> MakeReplica(const FleetOptions& options) {
  if (options.fidelity == Fidelity::kQueue) return std::make_unique<QueueReplica>(options.replica);
  return std::make_unique<SimReplica>(options.replica);
}

}  // namespace

void FleetRun::AddReplica() {
  const auto index = static_cast<uint32_t>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.replica = MakeReplica(options_);
  for (RouterNode& at : routers_) {
    node.ids.push_back(at.router->AddReplica({.url = absl::StrCat("grpc://replica-", index)}, now_));
    at.index_of[node.ids.back()] = index;
  }
  TellFacts(node);
}

void FleetRun::TellFacts(const Node& node) {
  for (size_t r = 0; r < routers_.size(); ++r) {
    router::Router& router = *routers_[r].router;
    router.OnReplicaFacts(node.ids[r],
                          {.epoch = {EpochOf(routers_[r].index_of.at(node.ids[r]))},
                           .models = {std::string(kSimIdentity.model)},
                           .kv_tokens = options_.replica.kv_tokens / grain_,
                           .kv_source = router::CapacitySource::kRegistered,
                           .block_size = options_.replica.block_tokens / grain_},
                          now_);
    router.OnProbe(node.ids[r], true, now_);
  }
}

void FleetRun::Step(uint32_t index) {
  Node& node = nodes_[index];
  if (now_ < node.frozen_until) {
    node.busy = true;
    return EndStepAt(index, node.frozen_until);
  }
  node.busy = node.replica->HasWork();
  if (!node.busy) return;
  const Duration lasts = node.replica->Step(now_);
  EndStepAt(index, now_ + (node.slowness == 1 ? lasts : FromSeconds(ToSeconds(lasts) * node.slowness)));
}

void FleetRun::EndStepAt(uint32_t index, Instant end) {
  nodes_[index].step_end = end;
  events_.Push(end, {Kind::kStepEnd, index});
}

void FleetRun::EndStep(uint32_t index) {
  Node& node = nodes_[index];
  if (!node.busy || node.step_end != now_) return;
  if (now_ < node.frozen_until) return EndStepAt(index, node.frozen_until);
  Send(index, node.replica->TakeMessage());
  Step(index);
}

void FleetRun::Send(uint32_t index, StepMessage message) {
  Node& node = nodes_[index];
  const Instant heard = now_ + options_.network_delay;
  if (heard >= node.next_load) {
    message.load = node.replica->Load();
    node.next_load = heard + options_.load_report_every;
  } else if (options_.fidelity == Fidelity::kQueue && !std::exchange(node.report_due, true)) {
    // The next step's end may be far; what is told then stays true until it.
    events_.Push(node.next_load - options_.network_delay, {Kind::kReport, index});
  }
  SendApart(index, message);
  node.messages.emplace_back(EpochOf(index), std::move(message));
  events_.Push(heard, {Kind::kHear, index});
}

void FleetRun::Report(uint32_t index) {
  Node& node = nodes_[index];
  node.report_due = false;
  if (node.busy && now_ >= node.frozen_until && now_ + options_.network_delay >= node.next_load)
    Send(index, {});
}

void FleetRun::Hear(uint32_t index) {
  Node& node = nodes_[index];
  auto [epoch, message] = std::move(node.messages.front());
  node.messages.pop_front();
  for (uint32_t r = 0; r < routers_.size(); ++r) {
    if (Cut(index, r)) {
      node.held[r].emplace_back(epoch, message);
    } else {
      Deliver(index, r, epoch, message);
    }
  }
}

void FleetRun::Deliver(uint32_t replica, uint32_t router, uint64_t epoch, const StepMessage& message) {
  router::Router& to = *routers_[router].router;
  if (!message.cache_events.empty()) {
    TellCacheEvents(
        replica, router,
        {.epoch = {epoch}, .first_sequence = message.first_sequence, .events = message.cache_events});
  }
  if (message.load && epoch == EpochOf(replica))
    to.OnLoadReport(nodes_[replica].ids[router], *message.load, now_);
  for (const ReplicaEvent& event : message.events) {
    const Active* active = active_[event.request].get();
    if (active != nullptr && active->router == router && active->replica == replica) Take(event);
  }
}

// ---- what goes its own way ----

// Takes cache events and the load out of the message where something may become of them.
void FleetRun::SendApart(uint32_t index, StepMessage& message) {
  const Disturbance& d = options_.disturbance;
  if (!options_.cache_events) message.cache_events.clear();
  const bool events_apart = d.lost > 0 || d.repeated > 0 || d.event_lag.count() > 0;
  const bool load_apart = d.load_lost > 0 || d.load_lag.count() > 0;
  for (uint32_t r = 0; r < routers_.size() && (events_apart || load_apart); ++r) {
    const Telling telling{.replica = index, .router = r, .epoch = EpochOf(index)};
    if (events_apart && !message.cache_events.empty()) {
      Telling events = telling;
      events.message = {.first_sequence = message.first_sequence, .cache_events = message.cache_events};
      const auto lag = [&] { return FromSeconds(ToSeconds(d.event_lag) * random_.Uniform()); };
      if (random_.Uniform() < d.repeated) TellLater(events, lag());
      if (random_.Uniform() < d.lost) {
        nodes_[index].untold.insert(r);
      } else {
        TellLater(std::move(events), lag());
      }
    }
    if (load_apart && message.load && random_.Uniform() >= d.load_lost) {
      Telling load = telling;
      load.message = {.load = message.load};
      TellLater(std::move(load), d.load_lag);
    }
  }
  if (events_apart) message.cache_events.clear();
  if (load_apart) message.load.reset();
}

void FleetRun::TellLater(Telling telling, Duration lag) {
  events_.Push(now_ + options_.network_delay + lag, {Kind::kTell, next_telling_});
  tellings_[next_telling_++] = std::move(telling);
}

void FleetRun::Tell(uint32_t id) {
  const Telling telling = std::move(tellings_.extract(id).mapped());
  if (!Cut(telling.replica, telling.router)) {
    Deliver(telling.replica, telling.router, telling.epoch, telling.message);
  } else if (!telling.message.cache_events.empty()) {
    nodes_[telling.replica].untold.insert(telling.router);
  }
}

// A gap is answered with all that is held, a round trip later.
void FleetRun::TellCacheEvents(uint32_t replica, uint32_t router, const router::CacheEventBatch& batch) {
  Node& node = nodes_[replica];
  const router::EventsTaken taken = routers_[router].router->OnCacheEvents(node.ids[router], batch, now_);
  if (taken.fate == router::BatchFate::kGap)
    events_.Push(now_ + 2 * options_.network_delay, {Kind::kSnapshot, replica, router});
}

void FleetRun::TellSnapshot(uint32_t replica, uint32_t router) {
  Node& node = nodes_[replica];
  if (!node.alive || Cut(replica, router)) return;
  const ReplicaModel::Snapshot all = node.replica->CacheSnapshot();
  node.untold.erase(router);
  routers_[router].router->OnCacheEvents(node.ids[router],
                                         {.epoch = {EpochOf(replica)},
                                          .first_sequence = all.next_sequence - all.blocks.size(),
                                          .events = all.blocks,
                                          .start = router::BatchStart::kSnapshot},
                                         now_);
}

// ---- faults of replicas ----

void FleetRun::Kill(Node& node) {
  const ReplicaStats stats = node.replica->stats();
  node.ended = {node.ended.steps + stats.steps, node.ended.preemptions + stats.preemptions,
                node.ended.evictions + stats.evictions};
  node.replica = MakeReplica(options_);
  node.alive = node.busy = node.report_due = false;
  node.frozen_until = node.next_load = {};
  node.untold.clear();
  ++node.epoch;
  for (const uint32_t index : node.inside) Lose(index);
}

}  // namespace kvring::sim
