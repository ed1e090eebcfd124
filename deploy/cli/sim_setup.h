// What the commands of `kvring sim` share: options of trace, fleet and load; a checked setup made of them;
// and simulations, one per policy and seed, side by side on as many threads as asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/histogram.h"
#include "sim/fleet_simulation.h"
#include "sim/trace.h"

namespace kvring::cli {

struct SimOptions {
  std::string trace;
  std::string workload;
  int64_t limit = 0;
  std::string time_unit = "ms";
  double speed = 1;
  double rate = 0;         // requests a second; 0: as the trace says
  double utilisation = 0;  // of what the fleet can do; 0: as the trace says
  int32_t scale = 1;
  std::string fidelity = "step";
  int32_t replicas = 8;
  int64_t kv_tokens = 0;
  int32_t block = 0;
  int32_t batch_tokens = 8192;
  int32_t max_running = 256;
  std::vector<std::string> policies{"cache-aware"};
  std::string preset = "h100-8b";
  uint64_t seed = 0;
  bool seed_given = false;
  int32_t seeds = 1;
  int32_t jobs = 1;
  bool session_keys = false;
  bool no_cache_events = false;
  int32_t routers = 1;
  std::vector<std::string> faults;
  double event_loss = 0;
  double event_lag_ms = 0;
  double load_lag_ms = 0;
  double load_delay_ms = 100;
  double network_ms = 0.2;
  bool json = false;
};

/// The options that all commands have.
void AddSimOptions(CLI::App& command, SimOptions& options);

/// What runs are made of, checked. `traces`: one for each seed where a workload is drawn from it; else one.
struct SimSetup {
  std::vector<sim::Trace> traces;
  sim::FleetOptions fleet;

  const sim::Trace& trace_of(size_t seed_index) const { return traces[traces.size() == 1 ? 0 : seed_index]; }
};
/// InvalidArgument, naming the option, or the trace's file, line and field. Draws the seed where none is
/// given.
absl::StatusOr<SimSetup> MakeSimSetup(SimOptions& options);

struct SimRun {
  std::string policy;
  size_t seed_index = 0;
  sim::FleetResult result;
  double wall_s = 0;
};
/// By policy, then by seed: options.seed, options.seed + 1, … On a terminal it says how far it is.
std::vector<SimRun> RunSims(const SimOptions& options, const SimSetup& setup);

/// "seed 7", the trace's totals, the fleet: what comes first in every table.
void PrintSimHeader(const SimOptions& options, const SimSetup& setup);

/// Of times in nanoseconds.
inline double MeanSeconds(const Histogram& times) { return times.mean() * 1e-9; }
inline double QuantileSeconds(const Histogram& times, double q) {
  return static_cast<double>(times.Quantile(q)) * 1e-9;
}

}  // namespace kvring::cli
