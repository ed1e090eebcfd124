// kvring audit: reads request logs, says what the hit rate should be, what it was, and what loses it. Works
// without a server and a network.
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/absl_view.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "deploy/cli/audit_check.h"
#include "deploy/cli/audit_log.h"
#include "deploy/cli/audit_record.h"
#include "deploy/cli/audit_report.h"
#include "deploy/cli/command.h"

namespace kvring::cli {
namespace {

struct Options {
  std::vector<std::string> paths;
  int64_t block = 16;
  int64_t min_tokens = 0;
  int64_t alarm_after = 3;
  std::string memory = "1GiB";
  std::vector<std::string> checks;
  std::string metrics;
  std::string html;
  bool show_text = false;
  bool json = false;
};

constexpr size_t kNamedBadRecords = 10;

// Half for texts and their index, half for the blocks that were seen (about 20 B each).
absl::StatusOr<router::AuditOptions> AuditOptionsOf(const Options& options) {
  int64_t memory = 0;
  KVRING_RETURN_IF_ERROR(ParseBytes(options.memory, memory));
  constexpr int64_t kLeast = int64_t{16} << 20;
  if (memory < kLeast) return absl::InvalidArgumentError("--memory: at least 16MiB");
  constexpr int64_t kBytesPerBlock = 20;
  return router::AuditOptions{.rule = {.block_tokens = options.block, .min_tokens = options.min_tokens},
                              .alarm_after = options.alarm_after,
                              .keep_text = options.show_text,
                              .prompt_bytes = static_cast<size_t>(memory / 4),
                              .history_blocks = static_cast<size_t>(memory / 2 / kBytesPerBlock)};
}

void NoteBad(AuditInput& input, std::string what) {
  ++input.bad;
  if (input.named.size() >= kNamedBadRecords) return;
  std::fprintf(stderr, "kvring: %s\n", what.c_str());
  input.named.push_back(std::move(what));
}

void ReadFile(const std::string& path, router::ReuseAudit& audit, AuditInput& input) {
  const absl::Status status = ReadLog(path, [&](std::string_view record, int64_t line) {
    const std::string where = absl::StrCat(path, ":", line);
    auto request = ReadLogRecord(record);
    if (!request.ok()) return NoteBad(input, absl::StrCat(where, ": ", request.status().message()));
    if (!*request) {
      ++input.skipped;
      return;
    }
    (*request)->where = where;
    ++input.requests;
    audit.Add(*std::move(*request));
  });
  if (!status.ok()) NoteBad(input, std::string(status.message()));
  ++input.files;
}

// The counters by which engines tell tokens found in the cache.
absl::StatusOr<int64_t> HitsOfPage(const std::string& path) {
  constexpr size_t kMaxPage = size_t{64} << 20;
  KVRING_ASSIGN_OR_RETURN(const std::string page, kvring::ReadFile(path, kMaxPage));
  double hits = 0;
  bool found = false;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const absl::string_view name = line.substr(0, line.find_first_of("{ "));
    double value = 0;
    const bool counts = name == "vllm:prefix_cache_hits_total" ||
                        name == "vllm:gpu_prefix_cache_hits_total" || name == "sglang:cached_tokens_total" ||
                        name == "kvring_cached_tokens_total";
    if (!counts || !absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) continue;
    hits += value;
    found = true;
  }
  if (!found) return absl::NotFoundError(absl::StrCat(path, ": no counter of cached tokens that is known"));
  return static_cast<int64_t>(hits);
}

// The page may count more than the log has, never less.
absl::Status CompareMetrics(const std::string& path, const router::ReuseSums& sums) {
  KVRING_ASSIGN_OR_RETURN(const int64_t hits, HitsOfPage(path));
  if (hits >= sums.told_cached) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("metric disagrees with usage (", hits, " vs ", sums.told_cached, ")"));
}

// What a check finds wrong.
std::vector<std::string> Failures(const Options& options, const std::vector<AuditCheck>& checks,
                                  const router::ReuseAudit& audit, const boost::json::object& report) {
  std::vector<std::string> failures;
  const auto note = [&](const absl::Status& status) {
    if (!status.ok()) failures.emplace_back(status.message());
  };
  if (!options.metrics.empty()) note(CompareMetrics(options.metrics, audit.total()));
  for (const AuditCheck& check : checks) note(check.Test(audit.total()));
  if (!checks.empty() && !report.at("alarm").is_null())
    failures.push_back("alarm: " + std::string(report.at("alarm").as_string()));
  return failures;
}

int Run(const Options& options) {
  std::vector<AuditCheck> checks;
  for (const std::string& text : options.checks) {
    auto check = AuditCheck::Parse(text);
    if (!check.ok()) return Fail(check.status()), 2;
    checks.push_back(*std::move(check));
  }
  const auto audit_options = AuditOptionsOf(options);
  if (!audit_options.ok()) return Fail(audit_options.status()), 2;
  const auto files = LogFiles(options.paths);
  if (!files.ok()) return Fail(files.status());
  router::ReuseAudit audit(*audit_options);
  AuditInput input;
  for (const std::string& file : *files) ReadFile(file, audit, input);
  if (input.requests == 0) return Fail("no request with a prompt was found in these files");
  boost::json::object report = AuditJson(input, audit);
  const std::vector<std::string> failures = Failures(options, checks, audit, report);
  boost::json::array failed;
  for (const std::string& failure : failures) failed.emplace_back(failure);
  report["failed"] = std::move(failed);
  if (!options.html.empty())
    if (const absl::Status status = WriteFile(options.html, AuditPage(report)); !status.ok())
      return Fail(status);
  std::printf("%s\n", options.json ? boost::json::serialize(report).c_str() : AuditText(report).c_str());
  for (const std::string& failure : failures) Fail(failure);
  return failures.empty() ? 0 : 1;
}

}  // namespace

void AddAudit(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("audit", "What the cache hit rate of request logs should be, and what loses it");
  command
      ->add_option("paths", options->paths, "Request logs (JSONL, JSON, HAR; .gz, .zst), or folders of them")
      ->required();
  command->add_option("--block", options->block, "Tokens of a cache block")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--min-tokens", options->min_tokens, "The provider caches nothing below so many tokens")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--alarm-after", options->alarm_after,
                   "Report a place where prompts part from so many requests on")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--memory", options->memory, "Bound on what is remembered")->capture_default_str();
  command->add_option(
      "--check", options->checks,
      "Exit 1 unless it holds: ceiling, achieved or gap, like 'ceiling>=80%'; also on an alarm");
  command->add_option(
      "--metrics", options->metrics,
      "The engine's /metrics page in a file: its hits against those of the log; exit 1 if it has fewer");
  command->add_option("--html", options->html, "Write the report as a page too");
  command->add_flag("--show-text", options->show_text, "Show the text of what changed, not its shape alone");
  command->add_flag("--json", options->json, "One JSON object");
  command->footer(
      "Examples:\n"
      "  kvring audit requests.jsonl\n"
      "  kvring audit logs/ --block 128 --min-tokens 1024 --html report.html\n"
      "  kvring audit requests.jsonl.zst --check 'ceiling>=80%' --check 'gap<=10%' --json");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
