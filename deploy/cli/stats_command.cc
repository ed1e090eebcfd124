// kvring stats: totals and replicas of a router.
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "deploy/cli/client.h"
#include "deploy/cli/command.h"

namespace kvring::cli {
namespace {

struct Options {
  RouterAddress router;
  bool json = false;
};

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

boost::json::object ToJson(const v1::StatsResponse& stats, const v1::ListReplicasResponse& replicas) {
  boost::json::array list;
  for (const v1::Replica& replica : replicas.replicas()) {
    list.push_back(boost::json::object{{"id", replica.id()},
                                       {"url", replica.url()},
                                       {"state", replica.state()},
                                       {"in_flight", replica.in_flight()},
                                       {"pending_prefill_tokens", replica.pending_prefill_tokens()},
                                       {"kv_capacity_tokens", replica.kv_capacity_tokens()},
                                       {"kv_capacity_source", replica.kv_capacity_source()},
                                       {"indexed_tokens", replica.indexed_tokens()},
                                       {"requests", replica.requests()}});
  }
  return {{"requests", stats.requests()},
          {"prompt_tokens", stats.prompt_tokens()},
          {"cached_tokens", stats.cached_tokens()},
          {"predicted_cached_tokens", stats.predicted_cached_tokens()},
          {"completion_tokens", stats.completion_tokens()},
          {"hit_rate", Share(stats.cached_tokens(), stats.prompt_tokens())},
          {"replicas", std::move(list)}};
}

void PrintTable(const v1::StatsResponse& stats, const v1::ListReplicasResponse& replicas) {
  std::printf("%lu requests, %lu prompt tokens, %lu cached (%.1f %%), %lu predicted, %lu generated\n",
              stats.requests(), stats.prompt_tokens(), stats.cached_tokens(),
              100 * Share(stats.cached_tokens(), stats.prompt_tokens()), stats.predicted_cached_tokens(),
              stats.completion_tokens());
  std::printf("%-12s %-9s %9s %10s %10s %9s  %s\n", "replica", "state", "in flight", "indexed", "capacity",
              "requests", "url");
  for (const v1::Replica& replica : replicas.replicas()) {
    std::printf("%-12s %-9s %9d %10ld %10ld %9lu  %s\n", replica.id().c_str(), replica.state().c_str(),
                replica.in_flight(), replica.indexed_tokens(), replica.kv_capacity_tokens(),
                replica.requests(), replica.url().c_str());
  }
}

int Run(const Options& options) {
  Client client(options.router);
  const auto stats = client.Stats();
  if (!stats.ok()) return Fail(stats.status());
  const auto replicas = client.Replicas();
  if (!replicas.ok()) return Fail(replicas.status());
  if (options.json) {
    std::printf("%s\n", boost::json::serialize(ToJson(*stats, *replicas)).c_str());
  } else {
    PrintTable(*stats, *replicas);
  }
  return 0;
}

}  // namespace

void AddStats(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("stats", "Totals and replicas of a router");
  AddRouterOptions(*command, options->router);
  command->add_flag("--json", options->json);
  command->footer("Examples:\n  kvring stats\n  kvring stats --router 10.0.0.5:9090 --json");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
