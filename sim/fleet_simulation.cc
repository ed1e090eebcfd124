#include "sim/fleet_simulation.h"

#include <algorithm>
#include <numeric>

#include "sim/fleet_run.h"

namespace kvring::sim {

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

FleetSimulation::FleetSimulation(const Trace& trace, const FleetOptions& options)
    : run_(std::make_unique<FleetRun>(trace, options)) {}
FleetSimulation::~FleetSimulation() = default;
FleetResult FleetSimulation::Run() { return run_->Run(); }

}  // namespace kvring::sim
