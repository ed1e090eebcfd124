#include "sim/swarm.h"

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "sim/workload.h"

namespace kvring::sim {
namespace {

constexpr double kHealed = 40;  // seconds: by then all faults are over
constexpr double kCalm = 30;    // and so long after it ejections and slow starts are, too
constexpr double kArrivals = 90;

template <class T>
T Pick(Random& random, std::initializer_list<T> of) {
  return *(of.begin() + random.Below(of.size()));
}

Trace DrawWorkload(Random& random) {
  const uint64_t seed = random.Next();
  if (random.Below(2) == 0) {
    ChatWorkload chat{
        .turns = 4, .group = 5, .system = 200, .persona = 100, .scenario = 60, .message = 40, .answer = 30};
    chat.sessions = 100 + static_cast<int64_t>(random.Below(150));
    chat.arrivals = {.rate = static_cast<double>(chat.sessions) / kArrivals, .pause = 2};
    return MakeChat(chat, seed);
  }
  PrefixWorkload single{
      .groups = 20, .prefix = 400, .own = 100, .answer = 40, .zipf = random.Uniform() * 1.5};
  single.requests = 300 + static_cast<int64_t>(random.Below(700));
  single.arrivals.rate = static_cast<double>(single.requests) / kArrivals;
  return MakePrefixes(single, seed);
}

FleetOptions DrawFleet(Random& random) {
  FleetOptions fleet;
  const std::vector<std::string> policies = router::Router::PolicyNames();
  fleet.router.policy = policies[random.Below(policies.size())];
  fleet.router.seed = random.Next();
  fleet.fidelity = Pick(random, {Fidelity::kStep, Fidelity::kQueue});
  fleet.replicas = 2 + static_cast<int32_t>(random.Below(5));
  fleet.routers = 1 + static_cast<int32_t>(random.Below(3));
  fleet.session_keys = random.Below(2) == 0;
  fleet.replica = {.kv_tokens = Pick(random, {int64_t{4'000}, int64_t{20'000}, int64_t{200'000}}),
                   .block_tokens = Pick(random, {16, 64, 128}),
                   .cost = {.base_ns = 8e6,
                            .per_prefill_token_ns = Pick(random, {2e4, 2e5}),
                            .per_decode_sequence_ns = 1e5,
                            .per_context_token_ns = 50},
                   .scheduler = {.max_batch_tokens = Pick(random, {128, 1024}), .max_running = 32}};
  if (random.Below(2) == 0)
    fleet.disturbance = {.lost = 0.1 * random.Uniform(),
                         .repeated = 0.2 * random.Uniform(),
                         .event_lag = FromSeconds(random.Uniform()),
                         .load_lag = FromSeconds(3 * random.Uniform()),
                         .load_lost = 0.5 * random.Uniform()};
  const auto faults = 1 + static_cast<int>(random.Below(8));
  fleet.faults = RandomFaults(faults, static_cast<uint32_t>(fleet.replicas),
                              static_cast<uint32_t>(fleet.routers), FromSeconds(kHealed), random);
  return fleet;
}

}  // namespace

SwarmRun RunSwarm(uint64_t seed) {
  Random random(seed);
  const Trace trace = DrawWorkload(random);
  const FleetOptions fleet = DrawFleet(random);
  SwarmRun run;
  run.description = absl::StrCat(fleet.router.policy, ", ", trace.name, " of ", trace.requests.size(), ", ",
                                 fleet.replicas, " replicas of ", fleet.replica.kv_tokens,
                                 " tokens in blocks of ", fleet.replica.block_tokens, ", ", fleet.routers,
                                 " routers, ", fleet.fidelity == Fidelity::kStep ? "step" : "queue", ", ",
                                 fleet.faults.size(), " faults");
  run.result = FleetSimulation(trace, fleet).Run();
  const FleetResult& r = run.result;
  run.violations = r.violations;
  const auto wrong = [&](const auto&... what) { run.violations.push_back(absl::StrCat(what...)); };
  const auto served = static_cast<int64_t>(r.latency.count());
  if (r.requests != std::ssize(trace.requests))
    wrong(r.requests, " of ", trace.requests.size(), " requests came");
  if (served + r.refused + r.failed != r.requests)
    wrong(served, " served, ", r.refused, " refused, ", r.failed, " failed of ", r.requests);
  if (ToSeconds(r.last_trouble) > kHealed + kCalm)
    wrong("a request was lost ", ToSeconds(r.last_trouble) - kHealed, " s after all had healed");
  return run;
}

}  // namespace kvring::sim
