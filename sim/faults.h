// Faults: what goes wrong in a simulated fleet, and when. Plain values and their descriptions; pure.
//
//   kill       the replica's process ends: what it had under way fails; after `lasts` it comes back, empty
//   and
//              with another epoch
//   freeze     it takes no step for so long, but its connections stay open
//   slow       its steps take `factor` times as long
//   leave      an operator drains it for so long (0: for good)
//   join       a replica is added
//   partition  nothing passes between it and one router: new requests fail at once, what it says arrives
//              afterwards
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "common/random.h"

namespace kvring::sim {

enum class FaultKind : uint8_t { kKill, kFreeze, kSlow, kLeave, kJoin, kPartition };

struct Fault {
  FaultKind kind = FaultKind::kKill;
  Duration at{};
  Duration lasts{};
  uint32_t replica = 0;  // not of kJoin
  double factor = 1;     // of kSlow
  uint32_t router = 0;   // of kPartition
};

/// What becomes of cache events and load reports on their way. Shares of batches, in [0, 1].
struct Disturbance {
  double lost = 0;
  double repeated = 0;
  Duration event_lag{};  // more than the network's delay, drawn up to it: so they also overtake each other
  Duration load_lag{};
  double load_lost = 0;
};

/// "kill:at=10,replica=2,lasts=5" (seconds). InvalidArgument, naming the field.
absl::StatusOr<Fault> ParseFault(std::string_view description);

/// Some of each kind, all healed at `until`, of a fleet of so many replicas and routers.
std::vector<Fault> RandomFaults(int count, uint32_t replicas, uint32_t routers, Duration until,
                                Random& random);

}  // namespace kvring::sim
