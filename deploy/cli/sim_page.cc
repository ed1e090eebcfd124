#include "deploy/cli/sim_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/files.h"
#include "deploy/cli/markup.h"
#include "deploy/cli/svg_chart.h"
#include "sim/pooled_lru.h"

namespace kvring::cli {
namespace {

constexpr const char* kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>kvring sim</title>\n<style>\n"
    "body{font-family:sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222;background:#fff}\n"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;border-bottom:1px solid "
    "#ddd;text-align:right}\n"
    "td:first-child,th:first-child{text-align:left}h2{margin-top:1.6em}p.note{color:#555}\n"
    "svg{width:100%;height:auto}\n</style></head><body>\n";

std::string Section(const std::string& title, const std::string& note, const std::string& chart) {
  return absl::StrCat("<h2>", title, "</h2>\n<p class=\"note\">", note, "</p>\n", chart);
}

std::string Table(const std::vector<SimRun>& runs) {
  std::string html =
      "<table><tr><th>policy</th><th>hit rate</th><th>TTFT mean</th><th>p50</th><th>p99</th><th>between "
      "tokens, "
      "p99</th><th>busiest / mean</th><th>refused</th></tr>\n";
  for (const SimRun& run : runs) {
    const sim::FleetResult& r = run.result;
    absl::StrAppendFormat(
        &html,
        "<tr><td>%s</td><td>%.2f %%</td><td>%.3f s</td><td>%.3f s</td><td>%.3f s</td><td>%.1f "
        "ms</td><td>%.2f</td><td>%d</td></tr>\n",
        EscapeMarkup(run.policy), r.hit_rate() * 100, MeanSeconds(r.ttft), QuantileSeconds(r.ttft, 0.5),
        QuantileSeconds(r.ttft, 0.99), QuantileSeconds(r.itl, 0.99) * 1e3, r.max_over_mean(), r.refused);
  }
  return html + "</table>\n";
}

// Bounds that hold for traces whose prompts are known beforehand.
bool PromptsAreKnown(const sim::Trace& trace) {
  return std::ranges::none_of(trace.requests,
                              [](const sim::TraceRequest& r) { return r.continues || r.copy > 0; });
}

std::string HitRates(const SimSetup& setup, const std::vector<SimRun>& runs) {
  std::vector<Bar> bars;
  for (const SimRun& run : runs)
    bars.push_back(
        {run.policy, {run.result.hit_rate() * 100}, absl::StrFormat("%.2f %%", run.result.hit_rate() * 100)});
  std::vector<std::pair<std::string, double>> marks{{"ceiling", runs[0].result.ceiling() * 100}};
  std::string note =
      "Share of prompt tokens that were found in a cache. Ceiling: one cache that never forgets.";
  if (PromptsAreKnown(setup.traces[0])) {
    const int64_t pooled = setup.fleet.replica.kv_tokens * setup.fleet.replicas;
    const double rate = sim::PooledLruHitRate(setup.traces[0], pooled);
    bars.push_back({"one pooled LRU", {rate * 100}, absl::StrFormat("%.2f %%", rate * 100)});
    note += " Pooled LRU: one cache of the whole fleet's size, answers taking no room.";
  }
  return Section("Hit rate", note, BarChart("% of prompt tokens", {"hit rate"}, bars, marks));
}

std::string FirstTokens(const std::vector<SimRun>& runs) {
  std::vector<Bar> bars;
  std::vector<Series> lines;
  for (const SimRun& run : runs) {
    const double all = MeanSeconds(run.result.ttft), queued = MeanSeconds(run.result.queued);
    bars.push_back({run.policy, {queued, std::max(all - queued, 0.0)}, absl::StrFormat("%.3f s", all)});
    Series& line = lines.emplace_back(Series{run.policy, {}});
    for (int i = 1; i <= 100; ++i) {
      const double q = i < 100 ? i / 100.0 : 0.999;
      line.points.emplace_back(std::max(QuantileSeconds(run.result.ttft, q), 1e-4), q * 100);
    }
  }
  return Section("Time to first token",
                 "Mean, split in the wait at the replica and the prefill (with the network).",
                 BarChart("seconds", {"queued", "prefill"}, bars, {})) +
         Section("Distribution of times to first token",
                 "Share of requests that have their first token by then.",
                 LineChart("seconds, logarithmic", "% of requests", lines, true));
}

std::string Loads(const std::vector<SimRun>& runs) {
  double most = 1;
  for (const SimRun& run : runs) {
    for (const sim::FleetSample& sample : run.result.samples)
      for (const int32_t n : sample.in_flight) most = std::max(most, static_cast<double>(n));
  }
  std::string html =
      "<h2>Load of each replica over time</h2>\n<p class=\"note\">Requests sent and not ended, the same "
      "shades for "
      "all policies. Even rows are an even load; a dark row is a hot replica.</p>\n";
  for (const SimRun& run : runs) {
    if (run.result.samples.empty()) continue;
    std::vector<std::vector<double>> rows(run.result.samples[0].in_flight.size());
    for (const sim::FleetSample& sample : run.result.samples)
      for (size_t i = 0; i < rows.size(); ++i) rows[i].push_back(sample.in_flight[i]);
    absl::StrAppend(&html, "<h3>", EscapeMarkup(run.policy), "</h3>\n",
                    StripChart(rows, most, ToSeconds(run.result.samples.back().at)));
  }
  return html;
}

std::string HitsOverTime(const std::vector<SimRun>& runs) {
  std::vector<Series> lines;
  for (const SimRun& run : runs) {
    Series& line = lines.emplace_back(Series{run.policy, {}});
    for (const sim::FleetSample& s : run.result.samples)
      line.points.emplace_back(ToSeconds(s.at), s.prompt_tokens == 0
                                                    ? 0
                                                    : 100.0 * static_cast<double>(s.cached_tokens) /
                                                          static_cast<double>(s.prompt_tokens));
  }
  return Section("Hit rate so far", "Over all requests admitted until then.",
                 LineChart("seconds", "% of prompt tokens", lines, false));
}

std::string MemoryCurve(const SimSetup& setup, const std::vector<SimRun>& runs) {
  if (!PromptsAreKnown(setup.traces[0])) return "";
  const auto pooled = static_cast<double>(setup.fleet.replica.kv_tokens) * setup.fleet.replicas;
  Series lru{"one pooled LRU", {}}, ceiling{"ceiling", {}};
  for (double factor = 1.0 / 16; factor <= 16; factor *= 2) {
    lru.points.emplace_back(
        pooled * factor, 100 * sim::PooledLruHitRate(setup.traces[0], static_cast<int64_t>(pooled * factor)));
    ceiling.points.emplace_back(pooled * factor, 100 * runs[0].result.ceiling());
  }
  return Section(
      "Memory curve",
      absl::StrFormat("Hit rate of one pooled LRU from a sixteenth to sixteen times this fleet's %.3g KV "
                      "tokens: what more memory would give, at best.",
                      pooled),
      LineChart("KV tokens of the fleet, logarithmic", "% of prompt tokens", {lru, ceiling}, true));
}

}  // namespace

std::string SimPage(const SimOptions& options, const SimSetup& setup, const std::vector<SimRun>& runs) {
  const sim::TraceTotals totals = sim::Totals(setup.traces[0]);
  std::string html = absl::StrCat(
      kHead, "<h1>A fleet on paper</h1>\n<p>", EscapeMarkup(setup.traces[0].name), ": ", totals.requests,
      " requests over ", absl::StrFormat("%.0f", ToSeconds(totals.last_arrival)), " s, to ", options.replicas,
      " replicas ", EscapeMarkup(options.preset), " (an estimate) with ", setup.fleet.replica.kv_tokens,
      " KV tokens each in blocks of ", setup.fleet.replica.block_tokens, ". Fidelity ", options.fidelity,
      ", seed ", options.seed, ".</p>\n");
  absl::StrAppend(&html, Table(runs), HitRates(setup, runs), FirstTokens(runs), Loads(runs),
                  HitsOverTime(runs), MemoryCurve(setup, runs));
  for (const SimRun& run : runs) {
    for (const std::string& warning : run.result.warnings)
      absl::StrAppend(&html, "<p>", EscapeMarkup(run.policy), ": ", EscapeMarkup(warning), "</p>\n");
  }
  return html + "</body></html>\n";
}

absl::Status WriteSimPage(const std::string& path, const SimOptions& options, const SimSetup& setup,
                          const std::vector<SimRun>& runs) {
  return WriteFile(path, SimPage(options, setup, runs));
}

}  // namespace kvring::cli
