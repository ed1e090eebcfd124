// Swarm: a fleet, a workload, a policy and faults drawn from one seed, run to the end, then looked over: what
// must always hold (FleetResult::violations; every request ends exactly once), and that after the last fault
// has healed nothing fails any more. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/fleet_simulation.h"

namespace kvring::sim {

struct SwarmRun {
  std::string description;  // what was drawn
  FleetResult result;
  std::vector<std::string> violations;  // none: all is well
};
SwarmRun RunSwarm(uint64_t seed);

}  // namespace kvring::sim
