// The simulator against figures that do not come from it: known hit rates of a public trace, queueing
// formulas, conservation.
#include "sim/fleet_simulation.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sim/pooled_lru.h"
#include "sim/workload.h"
#include "tests/unit/sim/fleet_fixture.h"

namespace kvring::sim {
namespace {

// The trace's own locality: independent measurements, to the second digit.
TEST(PooledLru, MooncakeConversation_KnownHitRates) {
  const Trace trace = Mooncake(0);
  ASSERT_EQ(trace.requests.size(), 12031U);
  EXPECT_NEAR(PooledLruHitRate(trace, int64_t{1} << 40), 0.3736, 0.00005);
  EXPECT_NEAR(PooledLruHitRate(trace, 256 << 10), 0.0430, 0.00005);
  EXPECT_NEAR(PooledLruHitRate(trace, 1 << 20), 0.0560, 0.00005);
  EXPECT_NEAR(PooledLruHitRate(trace, 4 << 20), 0.1851, 0.00005);
  EXPECT_NEAR(PooledLruHitRate(trace, 16 << 20), 0.3415, 0.00005);
}

// By the engine's rule (whole blocks, never the last token) one replica that forgets nothing reaches the
// ceiling, 37.34 % over the whole trace, except where the first holder was still prefilling.
TEST(FleetSimulation, OneReplicaThatForgetsNothing_ReachesTheCeiling) {
  const Trace trace = Mooncake(1500);
  const FleetResult r = FleetSimulation(trace, Fleet("round-robin", 1, int64_t{400} << 20, 512)).Run();
  EXPECT_EQ(r.evictions, 0U);
  EXPECT_GT(r.ceiling(), 0.2);
  EXPECT_LE(r.hit_rate(), r.ceiling());
  EXPECT_GT(r.hit_rate(), r.ceiling() - 0.003);
}

TEST(FleetSimulation, EveryRequest_EndsOnceWithItsTokens) {
  const Trace trace = Mooncake(800);
  const TraceTotals totals = Totals(trace);
  for (const char* policy : {"round-robin", "cache-aware", "lmetric"}) {
    const FleetResult r = FleetSimulation(trace, Fleet(policy, 4, 300'000, 512)).Run();
    EXPECT_EQ(r.requests, totals.requests);
    EXPECT_EQ(r.refused, 0);
    EXPECT_EQ(r.prompt_tokens, totals.own_prompt_tokens);
    EXPECT_EQ(r.output_tokens, totals.output_tokens);
    EXPECT_EQ(std::accumulate(r.requests_of.begin(), r.requests_of.end(), int64_t{0}), totals.requests);
    EXPECT_EQ(static_cast<int64_t>(r.latency.count()), totals.requests);
    EXPECT_GT(r.evictions, 0U);
    EXPECT_LE(r.cached_tokens, r.ceiling_tokens);
  }
}

TEST(FleetSimulation, PolicyWithoutWhatItNeeds_SaysSo) {
  const Trace trace = MakeChat({.sessions = 20}, 5);
  FleetOptions options = Fleet("session-ring", 4, 50'000, 16);
  EXPECT_FALSE(FleetSimulation(trace, options).Run().warnings.empty());
  options.session_keys = true;
  EXPECT_TRUE(FleetSimulation(trace, options).Run().warnings.empty());
}

TEST(FleetSimulation, SameSeed_SameRun) {
  const Trace trace = MakeChat({.sessions = 40}, 5);
  const FleetOptions options = Fleet("power-of-two", 4, 50'000, 16);
  const FleetResult a = FleetSimulation(trace, options).Run(), b = FleetSimulation(trace, options).Run();
  EXPECT_EQ(a.trace_hash, b.trace_hash);
  FleetOptions other = options;
  other.router.seed = 2;
  EXPECT_NE(FleetSimulation(trace, other).Run().trace_hash, a.trace_hash);
}

// What can never fit is refused and counted; the rest is served.
TEST(FleetSimulation, TooLong_IsRefused) {
  const Trace trace = Mooncake(300);
  const FleetResult r = FleetSimulation(trace, Fleet("round-robin", 2, 20'480, 512)).Run();
  EXPECT_GT(r.refused, 0);
  EXPECT_EQ(r.refused + static_cast<int64_t>(r.latency.count()), 300);
}

// SIM-02: "prefix" and "own" make the whole prompt, 1,024 tokens: nine of ten find 512 of them.
TEST(FleetSimulation, SharedPrefix_IsPartOfThePrompt_SIM_02) {
  const Trace trace = MakeWorkload("prefixes:groups=1,requests=10,prefix=512,own=512,rate=0.1", 3).value();
  EXPECT_EQ(Totals(trace).own_prompt_tokens, 10'240);
  const FleetResult r = FleetSimulation(trace, Fleet("round-robin", 1, 100'000, 16)).Run();
  EXPECT_EQ(r.cached_tokens, 9 * 512);
}

// The essay: with N replicas behind round-robin, one follow-up turn in N meets its replica; cache-aware keeps
// them together, with nobody naming a session.
TEST(FleetSimulation, TenTurnsOnEightReplicas_RoundRobinMeetsOneInEight) {
  const Trace trace = MakeChat({.sessions = 300}, 7);
  const FleetResult rr = FleetSimulation(trace, Fleet("round-robin", 8, 400'000, 16)).Run();
  const double same = static_cast<double>(rr.follow_ups_on_same) / static_cast<double>(rr.follow_ups);
  EXPECT_EQ(rr.follow_ups, 300 * 9);
  EXPECT_NEAR(same, 1.0 / 8, 0.03);
  const FleetResult ours = FleetSimulation(trace, Fleet("cache-aware", 8, 400'000, 16)).Run();
  EXPECT_GT(ours.hit_rate(), ours.ceiling() - 0.02);
  EXPECT_GT(ours.hit_rate(), rr.hit_rate() + 0.2);
  EXPECT_LT(ours.ttft.mean(), rr.ttft.mean());
  EXPECT_GE(ours.predictions_exact * 100, ours.requests * 99);
}

}  // namespace
}  // namespace kvring::sim
