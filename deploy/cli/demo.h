// The demonstration of the quick start: two ten-turn conversations that share a system prompt, one over HTTP
// and one over gRPC, and the same conversation behind a round-robin router beside it. Printed for a person to
// read.
#pragma once

#include "absl/status/status.h"
#include "deploy/cli/fleet_process.h"

namespace kvring::cli {

absl::Status RunDemo(const FleetProcess& fleet);

}  // namespace kvring::cli
