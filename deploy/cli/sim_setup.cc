#include "deploy/cli/sim_setup.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "common/status_macros.h"
#include "sim/executor_preset.h"
#include "sim/io/trace_reader.h"
#include "sim/workload.h"

namespace kvring::cli {
namespace {

absl::Status CheckPolicies(const std::vector<std::string>& policies) {
  for (const std::string& policy : policies) {
    if (router::Router::Create({.policy = policy}) == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(
          "--policy ", policy, " is unknown; known: ", absl::StrJoin(router::Router::PolicyNames(), ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<sim::Trace>> LoadTraces(const SimOptions& options) {
  if (options.trace.empty() == options.workload.empty())
    return absl::InvalidArgumentError("one of --trace and --workload is needed");
  std::vector<sim::Trace> traces;
  if (!options.trace.empty()) {
    KVRING_ASSIGN_OR_RETURN(
        traces.emplace_back(),
        sim::ReadTrace(options.trace, {.limit = options.limit, .time_unit = options.time_unit}));
    return traces;
  }
  for (int32_t i = 0; i < options.seeds; ++i) {
    KVRING_ASSIGN_OR_RETURN(traces.emplace_back(),
                            sim::MakeWorkload(options.workload, options.seed + static_cast<uint64_t>(i)));
  }
  return traces;
}

// Requests a second over the time in which they come.
double RateOf(const sim::Trace& trace) {
  const double span = ToSeconds(sim::Totals(trace).last_arrival);
  return span > 0 ? static_cast<double>(trace.requests.size()) / span : 0;
}

// What the fleet does when all is there at once and nobody pauses: requests over the time until the last
// ends.
double Throughput(const SimOptions& options, const sim::FleetOptions& fleet, sim::Trace trace) {
  for (sim::TraceRequest& request : trace.requests) request.arrival = {};
  sim::FleetOptions saturated = fleet;
  saturated.fidelity = sim::Fidelity::kQueue;
  saturated.router.policy = options.policies[0];
  const sim::FleetResult result = sim::FleetSimulation(trace, saturated).Run();
  return static_cast<double>(result.requests) / ToSeconds(result.makespan);
}

absl::Status FitLoad(const SimOptions& options, const sim::FleetOptions& fleet, sim::Trace& trace) {
  if (options.speed != 1) sim::SpeedUp(trace, options.speed);
  if (options.scale > 1) sim::Scale(trace, options.scale);
  const double now = RateOf(trace);
  if (options.rate == 0 && options.utilisation == 0) return absl::OkStatus();
  if (now == 0)
    return absl::InvalidArgumentError("--rate and --utilisation need requests that come over a time");
  const double wanted =
      options.rate > 0 ? options.rate : options.utilisation * Throughput(options, fleet, trace);
  sim::SpeedUp(trace, wanted / now);
  return absl::OkStatus();
}

std::string ProgressLine(const SimRun& run, size_t done, size_t all, Duration since) {
  const double left = ToSeconds(since) / static_cast<double>(done) * static_cast<double>(all - done);
  return absl::StrCat(done, "/", all, "  ", run.policy, "  about ", static_cast<int64_t>(left + 0.5),
                      " s left");
}

}  // namespace

absl::StatusOr<SimSetup> MakeSimSetup(SimOptions& options) {
  if (!options.seed_given) options.seed = RandomSeed() >> 12;  // exact in JSON
  KVRING_RETURN_IF_ERROR(CheckPolicies(options.policies));
  SimSetup setup;
  KVRING_ASSIGN_OR_RETURN(setup.traces, LoadTraces(options));
  const auto preset = sim::FindExecutorPreset(options.preset);
  if (!preset) return absl::InvalidArgumentError(absl::StrCat("--preset ", options.preset, " is unknown"));
  const int32_t block = options.block > 0 ? options.block : setup.traces[0].block_tokens;
  sim::FleetOptions& fleet = setup.fleet;
  fleet.fidelity = options.fidelity == "queue" ? sim::Fidelity::kQueue : sim::Fidelity::kStep;
  fleet.replicas = options.replicas;
  fleet.replica = {.kv_tokens = options.kv_tokens > 0 ? options.kv_tokens : preset->kv_tokens,
                   .block_tokens = block,
                   .cost = preset->cost,
                   .scheduler = {.max_batch_tokens = options.batch_tokens,
                                 .max_running = options.max_running,
                                 .max_waiting = 1 << 20}};
  if (fleet.replica.kv_tokens < block)
    return absl::InvalidArgumentError(absl::StrCat("--kv-tokens is less than one block of ", block));
  if (options.batch_tokens <= options.max_running)
    return absl::InvalidArgumentError("--batch-tokens must be above --max-running");
  fleet.network_delay = FromMillis(options.network_ms);
  fleet.load_report_every = FromMillis(options.load_delay_ms);
  fleet.session_keys = options.session_keys;
  fleet.cache_events = !options.no_cache_events;
  fleet.router.seed = options.seed;
  fleet.routers = options.routers;
  fleet.disturbance = {.lost = options.event_loss,
                       .event_lag = FromMillis(options.event_lag_ms),
                       .load_lag = FromMillis(options.load_lag_ms)};
  for (const std::string& text : options.faults) {
    KVRING_ASSIGN_OR_RETURN(fleet.faults.emplace_back(), sim::ParseFault(text));
  }
  for (sim::Trace& trace : setup.traces) KVRING_RETURN_IF_ERROR(FitLoad(options, fleet, trace));
  return setup;
}

std::vector<SimRun> RunSims(const SimOptions& options, const SimSetup& setup) {
  std::vector<SimRun> runs;
  for (const std::string& policy : options.policies) {
    for (int32_t i = 0; i < options.seeds; ++i) runs.push_back({policy, static_cast<size_t>(i), {}, 0});
  }
  const Instant begin = Now();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::atomic<size_t> next = 0, done = 0;
  const auto work = [&] {
    for (size_t at = next++; at < runs.size(); at = next++) {
      SimRun& run = runs[at];
      sim::FleetOptions fleet = setup.fleet;
      fleet.router.policy = run.policy;
      fleet.router.seed = options.seed + run.seed_index;
      const Instant began = Now();
      run.result = sim::FleetSimulation(setup.trace_of(run.seed_index), fleet).Run();
      run.wall_s = ToSeconds(Now() - began);
      const std::string line = ProgressLine(run, ++done, runs.size(), Now() - begin);
      if (terminal) std::fprintf(stderr, "\r%s\033[K", line.c_str());
    }
  };
  std::vector<std::jthread> threads;
  const auto most = std::min<size_t>(static_cast<size_t>(options.jobs), runs.size());
  for (size_t i = 1; i < most; ++i) threads.emplace_back(work);
  work();
  threads.clear();
  if (terminal) std::fprintf(stderr, "\r\033[K");
  return runs;
}

void PrintSimHeader(const SimOptions& options, const SimSetup& setup) {
  const sim::Trace& trace = setup.traces[0];
  const sim::TraceTotals totals = sim::Totals(trace);
  const auto& replica = setup.fleet.replica;
  std::printf("seed %llu", static_cast<unsigned long long>(options.seed));
  if (options.seeds > 1)
    std::printf(" to %llu", static_cast<unsigned long long>(options.seed) + options.seeds - 1);
  std::printf(
      "\n%s: %lld requests, %lld prompt tokens of their own (whole prompts, less what turns repeat), %lld "
      "output "
      "tokens, last arrival %.1f s\n",
      trace.name.c_str(), static_cast<long long>(totals.requests),
      static_cast<long long>(totals.own_prompt_tokens), static_cast<long long>(totals.output_tokens),
      ToSeconds(totals.last_arrival));
  std::printf("%d replicas %s (an estimate), %lld KV tokens each in blocks of %d; fidelity %s: %s\n\n",
              options.replicas, options.preset.c_str(), static_cast<long long>(replica.kv_tokens),
              replica.block_tokens, options.fidelity.c_str(),
              setup.fleet.fidelity == sim::Fidelity::kQueue ? "runs of decode steps taken at once"
                                                            : "every engine step simulated");
}

void AddSimOptions(CLI::App& command, SimOptions& options) {
  command.add_option("--trace", options.trace, "Mooncake or Weka JSONL, Azure CSV; plain, .gz or .zst");
  command.add_option("--workload", options.workload,
                     "chat, roleplay, agents, back-to-back, prefixes, zipf or rag, with fields: "
                     "chat:sessions=200,turns=10,clients=20 (sim/workload.h has them all)");
  command.add_option("--limit", options.limit, "First requests of the trace only")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--time-unit", options.time_unit, "Of a JSONL trace's times, where it does not say")
      ->check(CLI::IsMember({"s", "ms", "us"}))
      ->capture_default_str();
  command.add_option("--speed", options.speed, "Arrivals so many times as fast")->check(CLI::PositiveNumber);
  command
      .add_option("--scale", options.scale,
                  "So many copies of each request at the same time, which share nothing")
      ->check(CLI::Range(1, 100'000));
  auto* const rate =
      command.add_option("--rate", options.rate, "Requests a second")->check(CLI::PositiveNumber);
  command
      .add_option(
          "--utilisation", options.utilisation,
          "Load as a share of what the fleet does, under the first policy, when all requests are there at "
          "once")
      ->check(CLI::Range(0.01, 10.0))
      ->excludes(rate);
  command
      .add_option("--fidelity", options.fidelity,
                  "step: every engine step; queue: decode steps many at a time, much faster")
      ->check(CLI::IsMember({"step", "queue"}))
      ->capture_default_str();
  command.add_option("--replicas", options.replicas)->check(CLI::Range(1, 100'000))->capture_default_str();
  command.add_option("--kv-tokens", options.kv_tokens, "KV cache of a replica; without: the preset's")
      ->check(CLI::PositiveNumber);
  command.add_option("--block", options.block, "Tokens per KV block; without: the trace's")
      ->check(CLI::PositiveNumber);
  command.add_option("--batch-tokens", options.batch_tokens, "Most tokens of an engine step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-running", options.max_running, "Most sequences of an engine step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--policy", options.policies, "One or more, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  command
      .add_option("--preset", options.preset,
                  "Card and model class: {a100,h100,h200,l40s}-{8b,70b}; estimates")
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Same seed, same run; without: a random one")
      ->each([&options](const std::string&) { options.seed_given = true; });
  command.add_option("--jobs", options.jobs, "Simulations side by side")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--session-keys", options.session_keys, "Sessions of the trace reach the router");
  command.add_flag("--no-cache-events", options.no_cache_events, "Replicas do not tell what they hold");
  command.add_option("--load-delay", options.load_delay_ms, "Between two load reports of a replica, ms")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--network-delay", options.network_ms, "One way, ms")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--routers", options.routers, "That share nothing; each request comes to one at random")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option(
      "--fault", options.faults,
      "kill, freeze, slow, leave, join or partition, in seconds: kill:at=10,replica=2,lasts=5; again for "
      "more (sim/faults.h)");
  command.add_option("--event-loss", options.event_loss, "Share of cache event batches that get lost")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--event-lag", options.event_lag_ms,
                  "Cache events come up to so much later, and overtake, ms")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--load-lag", options.load_lag_ms, "Load reports come so much later, ms")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--json", options.json, "One JSON object");
}

}  // namespace kvring::cli
