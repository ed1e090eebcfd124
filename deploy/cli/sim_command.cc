// kvring sim: a fleet on paper. `run` plays a trace or a workload through the router's own code to simulated
// replicas, once per policy, and says hit rate, ceiling, times to first token and balance. `compare` does so
// for several seeds and says how sure the figures are; `capacity` finds how much it takes to keep a promise.
#include "deploy/cli/sim_command.h"

#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "deploy/cli/command.h"
#include "deploy/cli/sim_page.h"
#include "deploy/cli/sim_setup.h"

namespace kvring::cli {
namespace {

struct RunOptions : SimOptions {
  std::string html;
  bool csv = false;
};

boost::json::object TimesJson(const Histogram& times) {
  return {{"mean", MeanSeconds(times)},
          {"p50", QuantileSeconds(times, 0.5)},
          {"p99", QuantileSeconds(times, 0.99)}};
}

boost::json::object PolicyJson(const SimRun& run) {
  const sim::FleetResult& r = run.result;
  boost::json::object json{{"hit_rate", r.hit_rate()},          {"ttft_s", TimesJson(r.ttft)},
                           {"queued_s", TimesJson(r.queued)},   {"itl_s", TimesJson(r.itl)},
                           {"latency_s", TimesJson(r.latency)}, {"max_over_mean", r.max_over_mean()}};
  json["requests"] = r.requests;
  json["failed"] = r.failed;
  json["retries"] = r.retries;
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

void PrintJson(const RunOptions& options, const SimSetup& setup, const std::vector<SimRun>& runs) {
  boost::json::object policies;
  for (const SimRun& run : runs) policies[run.policy] = PolicyJson(run);
  boost::json::object json = SimJson(options, setup);
  json["ceiling_hit_rate"] = runs[0].result.ceiling();
  json["policies"] = std::move(policies);
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

void PrintCsv(const std::vector<SimRun>& runs) {
  std::printf(
      "policy,hit_rate,ceiling_hit_rate,ttft_mean_s,ttft_p50_s,ttft_p99_s,queued_mean_s,itl_p99_s,max_over_"
      "mean,"
      "requests,refused,prompt_tokens,cached_tokens\n");
  for (const SimRun& run : runs) {
    const sim::FleetResult& r = run.result;
    std::printf("%s,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.4f,%lld,%lld,%lld,%lld\n", run.policy.c_str(),
                r.hit_rate(), r.ceiling(), MeanSeconds(r.ttft), QuantileSeconds(r.ttft, 0.5),
                QuantileSeconds(r.ttft, 0.99), MeanSeconds(r.queued), QuantileSeconds(r.itl, 0.99),
                r.max_over_mean(), static_cast<long long>(r.requests), static_cast<long long>(r.refused),
                static_cast<long long>(r.prompt_tokens), static_cast<long long>(r.cached_tokens));
  }
}

void PrintTable(const std::vector<SimRun>& runs) {
  std::printf("%-22s %8s %8s %9s %9s %9s %9s %9s %8s %8s\n", "policy", "hit rate", "ceiling", "TTFT mean",
              "p50 s", "p99 s", "queued", "max/mean", "same", "refused");
  for (const SimRun& run : runs) {
    const sim::FleetResult& r = run.result;
    const double same =
        r.follow_ups == 0 ? 0 : static_cast<double>(r.follow_ups_on_same) / static_cast<double>(r.follow_ups);
    std::printf("%-22s %7.2f%% %7.2f%% %9.3f %9.3f %9.3f %9.3f %9.2f %7.1f%% %8lld\n", run.policy.c_str(),
                r.hit_rate() * 100, r.ceiling() * 100, MeanSeconds(r.ttft), QuantileSeconds(r.ttft, 0.5),
                QuantileSeconds(r.ttft, 0.99), MeanSeconds(r.queued), r.max_over_mean(), same * 100,
                static_cast<long long>(r.refused));
  }
  for (const SimRun& run : runs) {
    for (const std::string& warning : run.result.warnings) std::printf("! %s\n", warning.c_str());
  }
  std::printf(
      "\nqueued: mean wait at the replica, s. same: follow-up turns on the replica of the turn before.\n");
}

int Run(RunOptions& options) {
  auto setup = MakeSimSetup(options);
  if (!setup.ok()) {
    Fail(setup.status());
    return 2;
  }
  const bool table = !options.json && !options.csv;
  if (table) PrintSimHeader(options, *setup);
  const std::vector<SimRun> runs = RunSims(options, *setup);
  if (options.json) PrintJson(options, *setup, runs);
  if (options.csv) PrintCsv(runs);
  if (table) PrintTable(runs);
  if (options.html.empty()) return 0;
  const absl::Status written = WriteSimPage(options.html, options, *setup, runs);
  return written.ok() ? 0 : Fail(written);
}

void AddRun(CLI::App& sim, Action& action) {
  auto* const run = sim.add_subcommand("run", "Play a trace or a workload, once per policy");
  const auto options = std::make_shared<RunOptions>();
  AddSimOptions(*run, *options);
  run->add_option("--html", options->html, "Also write one self-contained page with plots");
  run->add_flag("--csv", options->csv, "One line per policy")->excludes("--json");
  run->footer(
      "Examples:\n"
      "  kvring sim run --trace conversation_trace.jsonl.zst --replicas 8 --kv-tokens 1000000 --policy "
      "cache-aware,round-robin --seed 1\n"
      "  kvring sim run --workload chat:sessions=200,turns=10 --replicas 8 --policy round-robin,cache-aware "
      "--seed 1 --html report.html");
  run->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace

boost::json::object SimJson(const SimOptions& options, const SimSetup& setup) {
  return {{"fidelity", options.fidelity},
          {"seed", options.seed},
          {"preset", options.preset},
          {"replicas", options.replicas},
          {"kv_tokens", setup.fleet.replica.kv_tokens},
          {"block_tokens", setup.fleet.replica.block_tokens}};
}

void AddSim(CLI::App& app, Action& action) {
  auto* const sim = app.add_subcommand("sim", "A simulated fleet under the router's own code");
  sim->require_subcommand(1);
  AddRun(*sim, action);
  AddSimCompare(*sim, action);
  AddSimCapacity(*sim, action);
  AddSimSwarm(*sim, action);
}

}  // namespace kvring::cli
