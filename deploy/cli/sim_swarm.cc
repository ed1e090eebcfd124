// kvring sim swarm: random faults on random fleets, seed after seed; what must not be is named with its seed.
#include <cstdio>
#include <memory>

#include "common/runtime/entropy.h"
#include "deploy/cli/sim_command.h"
#include "sim/swarm.h"

namespace kvring::cli {
namespace {

struct SwarmOptions {
  uint64_t seed = 0;
  int32_t seeds = 100;
};

int Swarm(const SwarmOptions& options) {
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(options.seed) + static_cast<unsigned>(options.seeds) - 1);
  int32_t bad = 0;
  for (int32_t i = 0; i < options.seeds; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    const sim::SwarmRun run = sim::RunSwarm(seed);
    if (run.violations.empty()) continue;
    ++bad;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), run.description.c_str());
    for (const std::string& violation : run.violations) std::printf("  %s\n", violation.c_str());
  }
  std::printf("%d of %d seeds found something\n", bad, options.seeds);
  return bad == 0 ? 0 : 1;
}

}  // namespace

void AddSimSwarm(CLI::App& sim, Action& action) {
  auto* const swarm =
      sim.add_subcommand("swarm", "Random faults on random fleets; exit code 1 if anything is found");
  const auto options = std::make_shared<SwarmOptions>();
  auto* const seed = swarm->add_option("--seed", options->seed, "The first; without: a random one");
  swarm->add_option("--seeds", options->seeds)->check(CLI::PositiveNumber)->capture_default_str();
  swarm->footer("Example:\n  kvring sim swarm --seed 1 --seeds 1000");
  swarm->callback([options, seed, &action] {
    if (seed->count() == 0) options->seed = RandomSeed() >> 12;
    action = [options] { return Swarm(*options); };
  });
}

}  // namespace kvring::cli
