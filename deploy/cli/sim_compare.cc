// kvring sim compare: several seeds of each policy; means with 95 % intervals, and differences to the first
// policy, seed by seed, so that what a seed does to all of them alike falls out.
#include <cstdio>
#include <memory>

#include "deploy/cli/sim_command.h"
#include "sim/interval.h"

namespace kvring::cli {
namespace {

struct Figure {
  const char* name;  // in JSON
  const char* head;  // of its column
  double scale;      // of what the table shows
  int decimals;
  double (*of)(const sim::FleetResult&);
};
constexpr Figure kFigures[] = {
    {"hit_rate", "hit rate %", 100, 2, [](const sim::FleetResult& r) { return r.hit_rate(); }},
    {"ttft_mean_s", "TTFT mean s", 1, 3, [](const sim::FleetResult& r) { return MeanSeconds(r.ttft); }},
    {"ttft_p99_s", "TTFT p99 s", 1, 3,
     [](const sim::FleetResult& r) { return QuantileSeconds(r.ttft, 0.99); }},
    {"itl_p99_s", "ITL p99 s", 1, 4, [](const sim::FleetResult& r) { return QuantileSeconds(r.itl, 0.99); }},
    {"max_over_mean", "max/mean", 1, 3, [](const sim::FleetResult& r) { return r.max_over_mean(); }}};

// Of one figure: a policy's values by seed, less those of a base.
sim::Interval IntervalOf(const Figure& figure, std::span<const SimRun> runs, std::span<const SimRun> base) {
  std::vector<double> values;
  for (size_t i = 0; i < runs.size(); ++i)
    values.push_back(figure.of(runs[i].result) - (base.empty() ? 0 : figure.of(base[i].result)));
  return sim::ConfidenceInterval(values);
}

void PrintRows(const SimOptions& options, const std::vector<SimRun>& runs, bool against_first) {
  const auto seeds = static_cast<size_t>(options.seeds);
  const std::span<const SimRun> all(runs);
  std::printf("%-22s", against_first ? ("less " + options.policies[0]).c_str() : "policy");
  for (const Figure& figure : kFigures) std::printf(" %20s", figure.head);
  std::printf("\n");
  for (size_t p = against_first ? 1 : 0; p < options.policies.size(); ++p) {
    std::printf("%-22s", options.policies[p].c_str());
    for (const Figure& figure : kFigures) {
      const auto base = against_first ? all.first(seeds) : std::span<const SimRun>();
      const sim::Interval x = IntervalOf(figure, all.subspan(p * seeds, seeds), base);
      std::printf(" %*.*f ± %7.*f", 10, figure.decimals, x.mean * figure.scale, figure.decimals,
                  x.half_width * figure.scale);
    }
    std::printf("\n");
  }
  std::printf("\n");
}

boost::json::object IntervalsJson(std::span<const SimRun> runs, std::span<const SimRun> base) {
  boost::json::object json;
  for (const Figure& figure : kFigures) {
    const sim::Interval x = IntervalOf(figure, runs, base);
    json[figure.name] = boost::json::object{{"mean", x.mean}, {"half_width", x.half_width}};
  }
  return json;
}

void PrintJson(const SimOptions& options, const SimSetup& setup, const std::vector<SimRun>& runs) {
  const auto seeds = static_cast<size_t>(options.seeds);
  const std::span<const SimRun> all(runs);
  boost::json::object policies, differences;
  for (size_t p = 0; p < options.policies.size(); ++p) {
    const auto of_policy = all.subspan(p * seeds, seeds);
    policies[options.policies[p]] = IntervalsJson(of_policy, {});
    if (p > 0) differences[options.policies[p]] = IntervalsJson(of_policy, all.first(seeds));
  }
  boost::json::object json = SimJson(options, setup);
  json["seeds"] = options.seeds;
  json["confidence"] = 0.95;
  json["ceiling_hit_rate"] = runs[0].result.ceiling();
  json["policies"] = std::move(policies);
  json["difference_to"] = options.policies[0];
  json["differences"] = std::move(differences);
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

int Compare(SimOptions& options) {
  const auto setup = MakeSimSetup(options);
  if (!setup.ok()) {
    Fail(setup.status());
    return 2;
  }
  if (!options.json) PrintSimHeader(options, *setup);
  const std::vector<SimRun> runs = RunSims(options, *setup);
  if (options.json) {
    PrintJson(options, *setup, runs);
    return 0;
  }
  PrintRows(options, runs, false);
  if (options.policies.size() > 1) PrintRows(options, runs, true);
  std::printf("± is half the 95 %% interval over %d seeds%s.\n", options.seeds,
              options.workload.empty() ? "; the trace is the same for all of them"
                                       : ", each with its own draw of the workload");
  return 0;
}

}  // namespace

void AddSimCompare(CLI::App& sim, Action& action) {
  auto* const compare =
      sim.add_subcommand("compare", "Several seeds of each policy, with intervals and paired differences");
  const auto options = std::make_shared<SimOptions>();
  options->seeds = 5;
  AddSimOptions(*compare, *options);
  compare->add_option("--seeds", options->seeds, "So many, from --seed on")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  compare->footer(
      "Example:\n"
      "  kvring sim compare --workload agents --policy cache-aware,round-robin,lpwl --seeds 5 --seed 1 "
      "--jobs 2");
  compare->callback([options, &action] { action = [options] { return Compare(*options); }; });
}

}  // namespace kvring::cli
