// FleetRun: what goes wrong, and how it heals.
#include <algorithm>
#include <utility>

#include "sim/fleet_run.h"

namespace kvring::sim {

void FleetRun::Begin(const Fault& fault) {
  if (fault.kind == FaultKind::kJoin) return AddReplica();
  const uint32_t replica = fault.replica % static_cast<uint32_t>(nodes_.size());
  const uint32_t router = fault.router % static_cast<uint32_t>(routers_.size());
  Node& node = nodes_[replica];
  switch (fault.kind) {
    case FaultKind::kKill:
      if (node.alive) Kill(node);
      break;
    case FaultKind::kFreeze:
      node.frozen_until = std::max(node.frozen_until, now_ + fault.lasts);
      break;
    case FaultKind::kSlow:
      node.slowness = fault.factor;
      break;
    case FaultKind::kLeave:
      for (size_t r = 0; r < routers_.size(); ++r) routers_[r].router->SetDraining(node.ids[r], true, now_);
      break;
    case FaultKind::kPartition:
      cuts_.insert({replica, router});
      for (const uint32_t index : node.inside) {
        if (active_[index]->router == router && !active_[index]->first_token_seen) Lose(index);
      }
      break;
    case FaultKind::kJoin:
      break;
  }
  if (fault.lasts.count() > 0)
    events_.Push(now_ + fault.lasts, {Kind::kHeal, static_cast<uint32_t>(&fault - options_.faults.data())});
}

void FleetRun::Heal(const Fault& fault) {
  const uint32_t replica = fault.replica % static_cast<uint32_t>(nodes_.size());
  const uint32_t router = fault.router % static_cast<uint32_t>(routers_.size());
  Node& node = nodes_[replica];
  switch (fault.kind) {
    case FaultKind::kKill:
      if (!std::exchange(node.alive, true)) TellFacts(node);
      break;
    case FaultKind::kSlow:
      node.slowness = 1;
      break;
    case FaultKind::kLeave:
      for (size_t r = 0; r < routers_.size(); ++r) routers_[r].router->SetDraining(node.ids[r], false, now_);
      break;
    case FaultKind::kPartition:
      cuts_.erase({replica, router});
      for (const auto& [epoch, message] : std::exchange(node.held[router], {}))
        Deliver(replica, router, epoch, message);
      TellSnapshot(replica, router);  // as whoever connects anew asks for
      break;
    case FaultKind::kFreeze:
    case FaultKind::kJoin:
      break;
  }
}

void FleetRun::Probe() {
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const bool answers = node.alive && now_ >= node.frozen_until;
    for (uint32_t r = 0; r < routers_.size(); ++r)
      routers_[r].router->OnProbe(node.ids[r], answers && !Cut(i, r), now_);
  }
}

}  // namespace kvring::sim
