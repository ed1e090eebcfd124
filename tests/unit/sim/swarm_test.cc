// Random faults on random fleets. More seeds: kvring sim swarm --seeds N.
#include "sim/swarm.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "sim/workload.h"
#include "tests/unit/sim/fleet_fixture.h"

namespace kvring::sim {
namespace {

void ExpectAllIsWell(uint64_t seed) {
  const SwarmRun run = RunSwarm(seed);
  std::cout << "seed " << seed << ": " << run.description << "; " << run.result.retries << " retries, "
            << run.result.failed << " failed, " << run.result.refused << " refused\n";
  for (const std::string& violation : run.violations) ADD_FAILURE() << "seed " << seed << ": " << violation;
}

TEST(Swarm, ThreeSeeds_NothingThatMustNotBe) {
  for (const uint64_t seed : {1, 2, 3}) ExpectAllIsWell(seed);
}

// Seeds that found a fault once.
TEST(Swarm, SeedsOfOld_NothingThatMustNotBe) {
  std::ifstream list(std::string(KVRING_SOURCE_DIR) + "/tests/unit/sim/data/swarm_seeds.txt");
  ASSERT_TRUE(list.good());
  uint64_t seed = 0;
  while (list >> seed) ExpectAllIsWell(seed);
}

TEST(Swarm, SameSeed_SameRun) { EXPECT_EQ(RunSwarm(5).result.trace_hash, RunSwarm(5).result.trace_hash); }

FleetResult RunWith(const std::vector<std::string>& faults, FleetOptions options) {
  for (const std::string& text : faults) {
    const auto fault = ParseFault(text);
    EXPECT_TRUE(fault.ok()) << fault.status();
    options.faults.push_back(*fault);
  }
  const Trace trace = MakeWorkload("prefixes:requests=400,rate=20,answer=50", 3).value();
  FleetResult result = FleetSimulation(trace, options).Run();
  EXPECT_TRUE(result.violations.empty()) << result.violations[0];
  EXPECT_EQ(static_cast<int64_t>(result.latency.count()) + result.refused + result.failed, 400);
  return result;
}

TEST(Faults, Kill_WaitingOnesAreServedElsewhere) {
  const FleetResult r = RunWith({"kill:at=5,replica=1,lasts=5"}, Fleet("round-robin", 4, 100'000, 16));
  EXPECT_GT(r.retries + r.failed, 0);
  EXPECT_EQ(r.refused, 0);
  EXPECT_LT(ToSeconds(r.last_trouble), 5.1);
}

// Its connections stay open: only the first token that does not come says so.
TEST(Faults, Freeze_IsLeftAfterItsPatience) {
  FleetOptions options = Fleet("round-robin", 4, 100'000, 16);
  options.router.patience = std::chrono::seconds(1);
  const FleetResult r = RunWith({"freeze:at=5,replica=1,lasts=60"}, options);
  EXPECT_GT(r.retries, 0);
  EXPECT_EQ(r.failed + r.refused, 0);
  EXPECT_LT(ToSeconds(Duration(r.ttft.max())), 8);
}

TEST(Faults, Slow_TakesItsFactor) {
  FleetOptions options = Fleet("round-robin", 1, 100'000, 16);
  const double plain = RunWith({}, options).itl.mean();
  EXPECT_GT(RunWith({"slow:at=0,replica=0,factor=3"}, options).itl.mean(), 2.5 * plain);
}

TEST(Faults, JoinAndLeave_MoveTheLoad) {
  const FleetResult r = RunWith({"join:at=5", "leave:at=5,replica=0"}, Fleet("round-robin", 2, 100'000, 16));
  ASSERT_EQ(r.requests_of.size(), 3U);
  EXPECT_GT(r.requests_of[2], 100);
  EXPECT_LT(r.requests_of[0], 80);
  EXPECT_EQ(r.failed + r.refused + r.retries, 0);
}

TEST(Faults, Partition_OnlyItsRouterGoesElsewhere) {
  FleetOptions options = Fleet("round-robin", 2, 100'000, 16);
  options.routers = 2;
  const FleetResult r = RunWith({"partition:at=5,replica=0,router=0,lasts=5"}, options);
  EXPECT_GT(r.retries, 0);
  EXPECT_EQ(r.refused, 0);
}

TEST(Faults, BadDescription_NamesTheField) {
  const auto error = [](const char* text) { return std::string(ParseFault(text).status().message()); };
  EXPECT_NE(error("melt:at=3").find("melt is unknown"), std::string::npos);
  EXPECT_NE(error("kill:when=3").find("when=3 is unknown"), std::string::npos);
  EXPECT_NE(error("kill:at=-3").find("at=-3 must be"), std::string::npos);
  EXPECT_NE(error("slow:factor=0").find("factor=0"), std::string::npos);
}

}  // namespace
}  // namespace kvring::sim
