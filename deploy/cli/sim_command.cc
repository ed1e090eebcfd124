// kvring sim: a fleet on paper. `run` plays a trace or a workload through the router's own code to simulated
// replicas, once per policy, and says hit rate, ceiling, times to first token and balance.
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "common/status_macros.h"
#include "deploy/cli/command.h"
#include "sim/executor_preset.h"
#include "sim/fleet_simulation.h"
#include "sim/io/trace_reader.h"
#include "sim/workload.h"

namespace kvring::cli {
namespace {

struct Options {
  std::string trace;
  std::string workload;
  int64_t limit = 0;
  std::string time_unit = "ms";
  double speed = 1;
  int32_t replicas = 8;
  int64_t kv_tokens = 0;
  int32_t block = 0;
  int32_t batch_tokens = 8192;
  int32_t max_running = 256;
  std::vector<std::string> policies{"cache-aware"};
  std::string preset = "h100-8b";
  uint64_t seed = 0;
  bool seed_given = false;
  bool session_keys = false;
  bool no_cache_events = false;
  std::string fidelity = "step";
  int32_t scale = 1;
  double load_delay_ms = 100;
  double network_ms = 0.2;
  bool json = false;
};

// What a run is made of, checked.
struct Setup {
  sim::Trace trace;
  sim::FleetOptions fleet;
};

struct PolicyRun {
  std::string policy;
  sim::FleetResult result;
  double wall_s = 0;
};

absl::Status CheckPolicies(const std::vector<std::string>& policies) {
  const std::vector<std::string> known = router::Router::PolicyNames();
  for (const std::string& policy : policies) {
    if (router::Router::Create({.policy = policy}) == nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("--policy ", policy, " is unknown; known: ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<sim::Trace> LoadTrace(const Options& options) {
  if (options.trace.empty() == options.workload.empty())
    return absl::InvalidArgumentError("one of --trace and --workload is needed");
  KVRING_ASSIGN_OR_RETURN(
      sim::Trace trace,
      options.trace.empty()
          ? sim::MakeWorkload(options.workload, options.seed)
          : sim::ReadTrace(options.trace, {.limit = options.limit, .time_unit = options.time_unit}));
  if (options.speed != 1) sim::SpeedUp(trace, options.speed);
  if (options.scale > 1) sim::Scale(trace, options.scale);
  return trace;
}

absl::StatusOr<Setup> MakeSetup(const Options& options) {
  KVRING_RETURN_IF_ERROR(CheckPolicies(options.policies));
  Setup setup;
  KVRING_ASSIGN_OR_RETURN(setup.trace, LoadTrace(options));
  const auto preset = sim::FindExecutorPreset(options.preset);
  if (!preset) return absl::InvalidArgumentError(absl::StrCat("--preset ", options.preset, " is unknown"));
  const int32_t block = options.block > 0 ? options.block : setup.trace.block_tokens;
  setup.fleet.fidelity = options.fidelity == "queue" ? sim::Fidelity::kQueue : sim::Fidelity::kStep;
  setup.fleet.replicas = options.replicas;
  setup.fleet.replica = {.kv_tokens = options.kv_tokens > 0 ? options.kv_tokens : preset->kv_tokens,
                         .block_tokens = block,
                         .cost = preset->cost,
                         .scheduler = {.max_batch_tokens = options.batch_tokens,
                                       .max_running = options.max_running,
                                       .max_waiting = 1 << 20}};
  if (setup.fleet.replica.kv_tokens < block)
    return absl::InvalidArgumentError(absl::StrCat("--kv-tokens is less than one block of ", block));
  setup.fleet.network_delay = FromMillis(options.network_ms);
  setup.fleet.load_report_every = FromMillis(options.load_delay_ms);
  setup.fleet.session_keys = options.session_keys;
  setup.fleet.cache_events = !options.no_cache_events;
  setup.fleet.router.seed = options.seed;
  return setup;
}

PolicyRun RunPolicy(Setup& setup, const std::string& policy) {
  setup.fleet.router.policy = policy;
  const Instant begin = Now();
  sim::FleetResult result = sim::FleetSimulation(setup.trace, setup.fleet).Run();
  return {policy, std::move(result), ToSeconds(Now() - begin)};
}

boost::json::object TimesJson(const Histogram& times) {
  return {{"mean", times.mean() * 1e-9},
          {"p50", static_cast<double>(times.Quantile(0.5)) * 1e-9},
          {"p99", static_cast<double>(times.Quantile(0.99)) * 1e-9}};
}

boost::json::object PolicyJson(const PolicyRun& run) {
  const sim::FleetResult& r = run.result;
  boost::json::object json{{"hit_rate", r.hit_rate()},
                           {"ttft_s", TimesJson(r.ttft)},
                           {"queued_s", TimesJson(r.queued)},
                           {"latency_s", TimesJson(r.latency)},
                           {"max_over_mean", r.max_over_mean()}};
  json["requests"] = r.requests;
  json["refused"] = r.refused;
  json["prompt_tokens"] = r.prompt_tokens;
  json["cached_tokens"] = r.cached_tokens;
  json["predicted_tokens"] = r.predicted_tokens;
  json["predictions_exact"] = r.predictions_exact;
  json["output_tokens"] = r.output_tokens;
  json["follow_ups"] = r.follow_ups;
  json["follow_ups_on_same"] = r.follow_ups_on_same;
  json["preemptions"] = r.preemptions;
  json["evictions"] = r.evictions;
  json["makespan_s"] = ToSeconds(r.makespan);
  json["requests_of"] = boost::json::array(r.requests_of.begin(), r.requests_of.end());
  json["trace_hash"] = absl::StrCat(absl::Hex(r.trace_hash, absl::kZeroPad16));
  json["warnings"] = boost::json::array(r.warnings.begin(), r.warnings.end());
  json["wall_s"] = run.wall_s;
  return json;
}

void PrintJson(const Options& options, const Setup& setup, const std::vector<PolicyRun>& runs) {
  boost::json::object policies;
  for (const PolicyRun& run : runs) policies[run.policy] = PolicyJson(run);
  const boost::json::object json{{"ceiling_hit_rate", runs[0].result.ceiling()},
                                 {"fidelity", options.fidelity},
                                 {"seed", options.seed},
                                 {"preset", options.preset},
                                 {"replicas", options.replicas},
                                 {"kv_tokens", setup.fleet.replica.kv_tokens},
                                 {"block_tokens", setup.fleet.replica.block_tokens},
                                 {"policies", std::move(policies)}};
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

void PrintHeader(const Options& options, const Setup& setup) {
  const sim::TraceTotals totals = sim::Totals(setup.trace);
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::printf(
      "%s: %lld requests, %lld prompt tokens of their own (whole prompts, less what turns repeat), %lld "
      "output "
      "tokens, last arrival %.1f s\n",
      setup.trace.name.c_str(), static_cast<long long>(totals.requests),
      static_cast<long long>(totals.own_prompt_tokens), static_cast<long long>(totals.output_tokens),
      ToSeconds(totals.last_arrival));
  std::printf("%d replicas %s (an estimate), %lld KV tokens each in blocks of %d; fidelity %s: %s\n\n",
              options.replicas, options.preset.c_str(), static_cast<long long>(setup.fleet.replica.kv_tokens),
              setup.fleet.replica.block_tokens, options.fidelity.c_str(),
              setup.fleet.fidelity == sim::Fidelity::kQueue ? "runs of decode steps taken at once"
                                                            : "every engine step simulated");
}

void PrintTable(const std::vector<PolicyRun>& runs) {
  std::printf("%-22s %8s %8s %9s %9s %9s %9s %9s %8s %8s\n", "policy", "hit rate", "ceiling", "TTFT mean",
              "p50 s", "p99 s", "queued", "max/mean", "same", "refused");
  for (const PolicyRun& run : runs) {
    const sim::FleetResult& r = run.result;
    const double same =
        r.follow_ups == 0 ? 0 : static_cast<double>(r.follow_ups_on_same) / static_cast<double>(r.follow_ups);
    std::printf("%-22s %7.2f%% %7.2f%% %9.3f %9.3f %9.3f %9.3f %9.2f %7.1f%% %8lld\n", run.policy.c_str(),
                r.hit_rate() * 100, r.ceiling() * 100, r.ttft.mean() * 1e-9,
                static_cast<double>(r.ttft.Quantile(0.5)) * 1e-9,
                static_cast<double>(r.ttft.Quantile(0.99)) * 1e-9, r.queued.mean() * 1e-9, r.max_over_mean(),
                same * 100, static_cast<long long>(r.refused));
  }
  for (const PolicyRun& run : runs) {
    for (const std::string& warning : run.result.warnings) std::printf("! %s\n", warning.c_str());
  }
  std::printf(
      "\nqueued: mean wait at the replica, s. same: follow-up turns on the replica of the turn before.\n");
}

int Run(Options& options) {
  if (!options.seed_given) options.seed = RandomSeed() >> 12;  // exact in JSON
  auto setup = MakeSetup(options);
  if (!setup.ok()) {
    Fail(setup.status());
    return 2;
  }
  if (!options.json) PrintHeader(options, *setup);
  std::vector<PolicyRun> runs;
  for (const std::string& policy : options.policies) {
    if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "%s …\n", policy.c_str());
    runs.push_back(RunPolicy(*setup, policy));
  }
  options.json ? PrintJson(options, *setup, runs) : PrintTable(runs);
  return 0;
}

}  // namespace

void AddSim(CLI::App& app, Action& action) {
  auto* const sim = app.add_subcommand("sim", "A simulated fleet under the router's own code");
  sim->require_subcommand(1);
  auto* const run = sim->add_subcommand("run", "Play a trace or a workload, once per policy");
  const auto options = std::make_shared<Options>();
  run->add_option("--trace", options->trace, "Mooncake JSONL or Azure CSV, plain, .gz or .zst");
  run->add_option("--workload", options->workload,
                  "chat, roleplay, agents, back-to-back, prefixes, zipf or rag, with fields: "
                  "chat:sessions=200,turns=10 (sim/workload.h has them all)");
  run->add_option("--limit", options->limit, "First requests of the trace only")
      ->check(CLI::NonNegativeNumber);
  run->add_option("--time-unit", options->time_unit, "Of a JSONL trace's times, where it does not say")
      ->check(CLI::IsMember({"s", "ms", "us"}))
      ->capture_default_str();
  run->add_option("--speed", options->speed, "Arrivals so many times as fast")->check(CLI::PositiveNumber);
  run->add_option("--scale", options->scale,
                  "So many copies of each request at the same time, which share nothing")
      ->check(CLI::Range(1, 100'000));
  run->add_option("--fidelity", options->fidelity,
                  "step: every engine step; queue: decode steps many at a time, much faster")
      ->check(CLI::IsMember({"step", "queue"}))
      ->capture_default_str();
  run->add_option("--replicas", options->replicas)->check(CLI::Range(1, 100'000))->capture_default_str();
  run->add_option("--kv-tokens", options->kv_tokens, "KV cache of a replica; without: the preset's")
      ->check(CLI::PositiveNumber);
  run->add_option("--block", options->block, "Tokens per KV block; without: the trace's")
      ->check(CLI::PositiveNumber);
  run->add_option("--batch-tokens", options->batch_tokens, "Most tokens of an engine step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--max-running", options->max_running, "Most sequences of an engine step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--policy", options->policies, "One or more, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  run->add_option("--preset", options->preset,
                  "Card and model class: {a100,h100,h200,l40s}-{8b,70b}; estimates")
      ->capture_default_str();
  run->add_option("--seed", options->seed, "Same seed, same run; without: a random one");
  run->add_flag("--session-keys", options->session_keys, "Sessions of the trace reach the router");
  run->add_flag("--no-cache-events", options->no_cache_events, "Replicas do not tell what they hold");
  run->add_option("--load-delay", options->load_delay_ms, "Between two load reports of a replica, ms")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  run->add_option("--network-delay", options->network_ms, "One way, ms")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  run->add_flag("--json", options->json, "One JSON object");
  run->footer(
      "Examples:\n"
      "  kvring sim run --trace conversation_trace.jsonl.zst --replicas 8 --kv-tokens 1000000 --policy "
      "cache-aware,round-robin --seed 1\n"
      "  kvring sim run --workload chat:sessions=200,turns=10 --replicas 8 --policy round-robin,cache-aware "
      "--seed 1");
  run->callback([options, run, &action] {
    options->seed_given = run->count("--seed") > 0;
    action = [options] { return Run(*options); };
  });
}

}  // namespace kvring::cli
