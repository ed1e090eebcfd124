// kvring lab timing: greedy generation from a 64-token prompt with and without a KV cache, at growing
// lengths: the median of three per cell, and what each doubling costs. Without a cache every step computes
// the whole sequence again.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "deploy/cli/lab_command.h"

namespace kvring::cli {
namespace {

constexpr int32_t kPrompt = 64;
constexpr int kRuns = 3;

enum class Cache { kKept, kNone };

struct Row {
  int32_t tokens;
  double cached_s;
  double uncached_s;

  double speedup() const { return uncached_s / cached_s; }
};

// Computes the tokens from `first` on and gives the best next one.
absl::StatusOr<TokenId> Next(replica::CpuExecutor& executor, const std::vector<TokenId>& tokens, size_t first,
                             const std::vector<BlockId>& table) {
  const auto count = static_cast<int32_t>(tokens.size() - first);
  replica::Batch batch;
  batch.steps = {
      {SequenceId{1}, std::span(tokens).subspan(first), static_cast<int32_t>(first), table, count - 1}};
  replica::StepOutput output;
  if (const absl::Status status = executor.Execute(batch, output); !status.ok()) return status;
  return static_cast<TokenId>(std::max_element(output.logits.begin(), output.logits.end()) -
                              output.logits.begin());
}

absl::StatusOr<double> TimeGeneration(replica::CpuExecutor& executor, int32_t new_tokens, Cache cache) {
  std::vector<BlockId> table;
  for (int32_t b = 0; b < executor.limits().num_blocks; ++b) table.push_back(BlockId{b});
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < kPrompt; ++token) tokens.push_back(100 + token);
  const Instant start = Now();
  size_t computed = 0;
  for (int32_t i = 0; i < new_tokens; ++i) {
    const absl::StatusOr<TokenId> next = Next(executor, tokens, computed, table);
    if (!next.ok()) return next.status();
    if (cache == Cache::kKept) computed = tokens.size();
    tokens.push_back(*next);
  }
  return static_cast<double>(Now().ns - start.ns) * 1e-9;
}

absl::StatusOr<Row> Measure(replica::CpuExecutor& executor, int32_t new_tokens) {
  std::vector<double> with, without;
  for (int run = 0; run < kRuns; ++run) {
    for (const auto& [cache, out] : {std::pair{Cache::kKept, &with}, {Cache::kNone, &without}}) {
      const absl::StatusOr<double> seconds = TimeGeneration(executor, new_tokens, cache);
      if (!seconds.ok()) return seconds.status();
      out->push_back(*seconds);
    }
  }
  std::sort(with.begin(), with.end());
  std::sort(without.begin(), without.end());
  return Row{new_tokens, with[kRuns / 2], without[kRuns / 2]};
}

void PrintHeader(const LabModel& model, const LabOptions& options) {
  std::printf("%s, %s, %d threads, prompt of %d tokens, median of %d\n", model.name.c_str(),
              options.model.dtype.c_str(), options.model.threads, kPrompt, kRuns);
  std::printf("%10s %12s %12s %14s %12s %9s\n", "new tokens", "with cache", "vs previous", "without",
              "vs previous", "speed-up");
}

void PrintRow(const Row& row, const std::optional<Row>& previous) {
  const auto factor = [&](double now, double before) {
    return previous ? absl::StrCat("x", now / before).substr(0, 5) : "-";
  };
  std::printf("%10d %10.2f s %12s %12.2f s %12s %8.1fx\n", row.tokens, row.cached_s,
              factor(row.cached_s, previous ? previous->cached_s : 0).c_str(), row.uncached_s,
              factor(row.uncached_s, previous ? previous->uncached_s : 0).c_str(), row.speedup());
  std::fflush(stdout);
}

boost::json::object Json(const LabModel& model, const LabOptions& options, const std::vector<Row>& rows) {
  boost::json::array out;
  for (size_t i = 0; i < rows.size(); ++i) {
    boost::json::object row = {{"new_tokens", rows[i].tokens},
                               {"cached_s", rows[i].cached_s},
                               {"uncached_s", rows[i].uncached_s},
                               {"speedup", rows[i].speedup()}};
    if (i > 0) {
      row["cached_vs_previous"] = rows[i].cached_s / rows[i - 1].cached_s;
      row["uncached_vs_previous"] = rows[i].uncached_s / rows[i - 1].uncached_s;
    }
    out.push_back(std::move(row));
  }
  return {{"model", model.name},
          {"device", options.device},
          {"dtype", options.model.dtype},
          {"prompt_tokens", kPrompt},
          {"runs", kRuns},
          {"rows", std::move(out)}};
}

int Run(LabOptions options) {
  std::sort(options.lengths.begin(), options.lengths.end());
  options.model.kv_tokens = kPrompt + options.lengths.back() + 16;
  const auto model = LoadLabModel(options.model);
  if (!model.ok()) return Fail(model.status());
  if (kPrompt + options.lengths.back() > model->executor->limits().context_length) {
    Fail(absl::StrCat("--lengths: ", options.lengths.back(),
                      " and the prompt are over the model's context of ",
                      model->executor->limits().context_length));
    return 2;
  }
  if (!options.json) PrintHeader(*model, options);
  std::vector<Row> rows;
  for (const int32_t length : options.lengths) {
    const absl::StatusOr<Row> row = Measure(*model->executor, length);
    if (!row.ok()) return Fail(row.status());
    if (!options.json) PrintRow(*row, rows.empty() ? std::nullopt : std::optional(rows.back()));
    rows.push_back(*row);
  }
  if (options.json) std::printf("%s\n", boost::json::serialize(Json(*model, options, rows)).c_str());
  return 0;
}

}  // namespace

void AddLabTiming(CLI::App& lab, Action& action) {
  auto options =
      std::make_shared<LabOptions>();  // shared by the parser and the action, whichever lives longer
  options->lengths = {32, 64, 128, 256, 512};
  CLI::App* command =
      lab.add_subcommand("timing", "Generation with and without a KV cache at growing lengths");
  AddLabOptions(*command, *options);
  command->footer(
      "Examples:\n  kvring lab timing\n  kvring lab timing --model gpt2-124m --dtype f32 --lengths "
      "32,64,128,256,512 --json");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
