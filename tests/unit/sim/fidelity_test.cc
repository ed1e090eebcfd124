// The two fidelities against queueing theory and against each other.
#include <cmath>

#include "common/random.h"
#include "sim/workload.h"
#include "tests/unit/sim/fleet_fixture.h"

namespace kvring::sim {
namespace {

// One server, one request at a time, all services alike (M/D/1), or exponential (M/M/1): the mean wait is
// rho / (2 (1 - rho)), or rho / (1 - rho), services (Kleinrock 1975), rho of the arrivals that were drawn.
// Returned: the wait over that.
double WaitOverTheory(Fidelity fidelity, bool exponential) {
  constexpr int kRequests = 100'000;
  constexpr double kService = 0.1, kToken = 1e-3;  // seconds
  Random random(11);
  Trace trace{.name = "queue", .block_tokens = 16};
  double at = 0, served = 0;
  for (int i = 0; i < kRequests; ++i) {
    at += random.Exponential(kService / 0.6);
    const double service = exponential ? random.Exponential(kService) : kService;
    trace.AddRequest().arrival = FromSeconds(at);
    trace.AddSpan(
        {static_cast<uint64_t>(i), std::max(1, static_cast<int32_t>(std::lround(service / kToken)))});
    served += trace.requests.back().span_tokens * kToken;
  }
  FleetOptions options = Fleet("round-robin", 1, 1 << 16, 16);
  options.fidelity = fidelity;
  options.network_delay = {};
  options.replica.cost = {.per_prefill_token_ns = kToken * 1e9, .per_decode_sequence_ns = kToken * 1e9};
  options.replica.scheduler = {.max_batch_tokens = 1 << 15, .max_running = 1, .max_waiting = 1 << 20};
  const FleetResult r = FleetSimulation(trace, options).Run();
  const double rho = served / at, services = rho / (1 - rho) / (exponential ? 1 : 2);
  return r.queued.mean() * 1e-9 / (served / kRequests) / services;
}

TEST(Fidelity, OneServer_WaitsAsQueueingTheorySays) {
  for (const Fidelity fidelity : {Fidelity::kStep, Fidelity::kQueue}) {
    EXPECT_NEAR(WaitOverTheory(fidelity, false), 1, 0.02);
    EXPECT_NEAR(WaitOverTheory(fidelity, true), 1, 0.02);
  }
}

struct Pair {
  FleetResult step, queue;
};
Pair RunBoth(const Trace& trace, FleetOptions options) {
  Pair pair;
  pair.step = FleetSimulation(trace, options).Run();
  options.fidelity = Fidelity::kQueue;
  pair.queue = FleetSimulation(trace, options).Run();
  return pair;
}

// Where no decision depends on loads, nothing at all may differ: same blocks found, evicted, preempted, and
// times to the rounding of a step's nanoseconds.
void ExpectTheSame(const Pair& r) {
  EXPECT_EQ(r.queue.cached_tokens, r.step.cached_tokens);
  EXPECT_EQ(r.queue.ceiling_tokens, r.step.ceiling_tokens);
  EXPECT_EQ(r.queue.output_tokens, r.step.output_tokens);
  EXPECT_EQ(r.queue.refused, r.step.refused);
  EXPECT_EQ(r.queue.evictions, r.step.evictions);
  EXPECT_NEAR(r.queue.ttft.mean(), r.step.ttft.mean(), 1e-3 * r.step.ttft.mean());
  EXPECT_NEAR(r.queue.latency.mean(), r.step.latency.mean(), 1e-3 * r.step.latency.mean());
}

TEST(Fidelity, FixedPlacement_SameBlocksAndTimes) {
  ExpectTheSame(RunBoth(Mooncake(1200), Fleet("round-robin", 4, 300'000, 512)));
  ExpectTheSame(RunBoth(MakeChat({.sessions = 60}, 3), Fleet("round-robin", 4, 30'000, 16)));
}

TEST(Fidelity, MemoryShort_PreemptsAndEndsAll) {
  const Trace trace = MakeWorkload("prefixes:requests=400,own=900,answer=400,rate=40", 5).value();
  const Pair r = RunBoth(trace, Fleet("round-robin", 2, 30'000, 16));
  EXPECT_GT(r.step.preemptions, 0U);
  EXPECT_GT(r.queue.preemptions, 0U);
  EXPECT_EQ(r.queue.output_tokens, 400 * 400);
  EXPECT_NEAR(r.queue.latency.mean(), r.step.latency.mean(), 0.05 * r.step.latency.mean());
}

// The bar of the two: hit rate within half a point, mean TTFT within 5 %, on the whole trace. A sanitizer
// sees a part of it, where a few ties more weigh double.
TEST(Fidelity, Policies_AgreeOnTheSharedTrace) {
#ifdef __SANITIZE_ADDRESS__
  const Trace trace = Mooncake(2000);
  const double bar = 0.01;
#else
  const Trace trace = Mooncake(0);
  const double bar = 0.005;
#endif
  for (const char* policy : {"cache-aware", "least-prefill-tokens"}) {
    const Pair r = RunBoth(trace, Fleet(policy, 8, 426'788, 512));
    EXPECT_NEAR(r.queue.hit_rate(), r.step.hit_rate(), bar) << policy;
    EXPECT_NEAR(r.queue.ttft.mean(), r.step.ttft.mean(), 0.05 * r.step.ttft.mean()) << policy;
  }
}

}  // namespace
}  // namespace kvring::sim
