// kvring sim capacity: the least replicas, or the highest rate, at which a policy keeps a promise (SLO). By
// halving: a fleet that keeps it with n replicas is taken to keep it with more, and at lower rates.
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "deploy/cli/sim_command.h"

namespace kvring::cli {
namespace {

struct Limit {
  std::string name;  // "ttft_p99"
  double most_s = 0;
  double (*of)(const sim::FleetResult&) = nullptr;
};

struct CapacityOptions : SimOptions {
  std::string slo = "ttft_p99=2s,itl_p99=50ms";
  std::string find = "replicas";
  int32_t most_replicas = 1024;
};

template <Histogram sim::FleetResult::*times, int percent>
double QuantileOf(const sim::FleetResult& r) {
  return QuantileSeconds(r.*times, percent / 100.0);
}

std::optional<Limit> FindLimit(absl::string_view name) {
  using sim::FleetResult;
  static const Limit kKnown[] = {{"ttft_mean", 0, [](const FleetResult& r) { return MeanSeconds(r.ttft); }},
                                 {"ttft_p50", 0, QuantileOf<&FleetResult::ttft, 50>},
                                 {"ttft_p90", 0, QuantileOf<&FleetResult::ttft, 90>},
                                 {"ttft_p99", 0, QuantileOf<&FleetResult::ttft, 99>},
                                 {"itl_p50", 0, QuantileOf<&FleetResult::itl, 50>},
                                 {"itl_p99", 0, QuantileOf<&FleetResult::itl, 99>},
                                 {"latency_p99", 0, QuantileOf<&FleetResult::latency, 99>}};
  for (const Limit& limit : kKnown) {
    if (name == limit.name) return limit;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<Limit>> ParseSlo(const std::string& text) {
  std::vector<Limit> limits;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    std::optional<Limit> limit = FindLimit(pair.first);
    if (!limit)
      return absl::InvalidArgumentError(absl::StrCat(
          "--slo ", pair.first,
          " is unknown; known: ttft_mean, ttft_p50, ttft_p90, ttft_p99, itl_p50, itl_p99, latency_p99"));
    absl::Duration most;
    if (!absl::ParseDuration(pair.second, &most) || most <= absl::ZeroDuration())
      return absl::InvalidArgumentError(
          absl::StrCat("--slo ", pair.first, "=", pair.second, ": a time with a unit, as in 2s or 50ms"));
    limit->most_s = absl::ToDoubleSeconds(most);
    limits.push_back(*limit);
  }
  return limits;
}

// What one policy needs, or can do.
struct Answer {
  bool kept = false;  // at all
  int32_t replicas = 0;
  double rate = 0;  // requests a second
  sim::FleetResult result;
};

class Search {
 public:
  Search(const CapacityOptions& options, const SimSetup& setup, const std::vector<Limit>& limits,
         std::string policy)
      : options_(options), setup_(setup), limits_(limits), policy_(std::move(policy)) {}

  Answer Replicas() {
    int32_t below = 0, enough = 1;
    while (!Try(enough, 1)) {
      if (enough == options_.most_replicas) return {};
      below = enough;
      enough = std::min(2 * enough, options_.most_replicas);
    }
    while (enough - below > 1) {
      const int32_t middle = below + (enough - below) / 2;
      (Try(middle, 1) ? enough : below) = middle;
    }
    return best_;
  }

  // To 1 %.
  Answer Rate() {
    double kept = 1, broken = 1;
    if (Try(options_.replicas, 1)) {
      while (Try(options_.replicas, broken *= 2) && broken < kMostSpeed) kept = broken;
    } else {
      while (!Try(options_.replicas, kept /= 2)) {
        if (kept < 1 / kMostSpeed) return {};
        broken = kept;
      }
    }
    while (broken / kept > 1.01) {
      const double middle = std::sqrt(kept * broken);
      (Try(options_.replicas, middle) ? kept : broken) = middle;
    }
    return best_;
  }

 private:
  static constexpr double kMostSpeed = 1 << 20;

  bool Try(int32_t replicas, double speed) {
    sim::Trace trace = setup_.traces[0];
    sim::SpeedUp(trace, speed);
    sim::FleetOptions fleet = setup_.fleet;
    fleet.replicas = replicas;
    fleet.router.policy = policy_;
    sim::FleetResult result = sim::FleetSimulation(trace, fleet).Run();
    bool kept = result.refused == 0;
    for (const Limit& limit : limits_) kept &= limit.of(result) <= limit.most_s;
    const double rate = static_cast<double>(result.requests) / ToSeconds(result.makespan);
    if (kept) best_ = {true, replicas, rate, std::move(result)};
    return kept;
  }

  const CapacityOptions& options_;
  const SimSetup& setup_;
  const std::vector<Limit>& limits_;
  const std::string policy_;
  Answer best_;
};

void PrintRow(const std::string& policy, const Answer& answer, const std::vector<Limit>& limits) {
  if (!answer.kept) {
    std::printf("%-22s does not keep it at all\n", policy.c_str());
    return;
  }
  std::printf("%-22s %8d %10.2f %8.2f%%", policy.c_str(), answer.replicas, answer.rate,
              answer.result.hit_rate() * 100);
  for (const Limit& limit : limits) std::printf(" %12.4f", limit.of(answer.result));
  std::printf("\n");
}

boost::json::object AnswerJson(const Answer& answer, const std::vector<Limit>& limits) {
  if (!answer.kept) return {{"kept", false}};
  boost::json::object json{{"kept", true},
                           {"replicas", answer.replicas},
                           {"requests_per_second", answer.rate},
                           {"hit_rate", answer.result.hit_rate()}};
  for (const Limit& limit : limits) json[limit.name + "_s"] = limit.of(answer.result);
  return json;
}

int Capacity(CapacityOptions& options) {
  const auto limits = ParseSlo(options.slo);
  const auto setup = limits.ok() ? MakeSimSetup(options) : limits.status();
  if (!setup.ok()) {
    Fail(setup.status());
    return 2;
  }
  if (!options.json) {
    PrintSimHeader(options, *setup);
    std::printf("%-22s %8s %10s %9s", "policy", "replicas", "requests/s", "hit rate");
    for (const Limit& limit : *limits) std::printf(" %12s", limit.name.c_str());
    std::printf("\n");
  }
  boost::json::object policies;
  bool all = true;
  for (const std::string& policy : options.policies) {
    Search search(options, *setup, *limits, policy);
    const Answer answer = options.find == "rate" ? search.Rate() : search.Replicas();
    all &= answer.kept;
    if (!options.json) PrintRow(policy, answer, *limits);
    policies[policy] = AnswerJson(answer, *limits);
  }
  if (options.json) {
    boost::json::object json = SimJson(options, *setup);
    json.erase("replicas");
    json["slo"] = options.slo;
    json["find"] = options.find;
    json["policies"] = std::move(policies);
    std::printf("%s\n", boost::json::serialize(json).c_str());
  }
  return all ? 0 : 1;
}

}  // namespace

void AddSimCapacity(CLI::App& sim, Action& action) {
  auto* const capacity =
      sim.add_subcommand("capacity", "Least replicas, or highest rate, that keep a promise, per policy");
  const auto options = std::make_shared<CapacityOptions>();
  options->fidelity = "queue";
  AddSimOptions(*capacity, *options);
  capacity
      ->add_option("--slo", options->slo,
                   "Limits, all of which must hold; itl: a request's mean time between tokens")
      ->capture_default_str();
  capacity
      ->add_option("--find", options->find,
                   "replicas: least for the trace as it is; rate: highest for --replicas")
      ->check(CLI::IsMember({"replicas", "rate"}))
      ->capture_default_str();
  capacity->add_option("--most-replicas", options->most_replicas)
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  capacity->footer(
      "Exit code 1: a policy does not keep it at all.\nExample:\n"
      "  kvring sim capacity --trace conversation_trace.jsonl.zst --slo ttft_p99=2s,itl_p99=50ms --policy "
      "cache-aware,round-robin --seed 1");
  capacity->callback([options, &action] { action = [options] { return Capacity(*options); }; });
}

}  // namespace kvring::cli
