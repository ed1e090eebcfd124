// The commands of `kvring sim` and what their JSON shares.
#pragma once

#include <boost/json.hpp>

#include "deploy/cli/command.h"
#include "deploy/cli/sim_setup.h"

namespace kvring::cli {

void AddSimCompare(CLI::App& sim, Action& action);
void AddSimCapacity(CLI::App& sim, Action& action);
void AddSimSwarm(CLI::App& sim, Action& action);

/// Fidelity, seed and fleet: what every JSON object of a simulation begins with.
boost::json::object SimJson(const SimOptions& options, const SimSetup& setup);

}  // namespace kvring::cli
