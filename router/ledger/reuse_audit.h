// ReuseAudit: logged requests in, one after another, as they were sent; out comes what the hit rate should
// be, what it was, and what lies between: levels (reuse_levels.h), places where prompts part
// (divergence_tally.h), sums by model, tenant, hour and prompt family. The answer is that of one cache of
// infinite memory that has every earlier prompt ready. Memory is bounded by AuditOptions. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "router/ledger/divergence_tally.h"
#include "router/ledger/prefix_history.h"
#include "router/ledger/prompt_memory.h"
#include "router/ledger/reuse_levels.h"

namespace kvring::router {

struct LoggedRequest {
  std::string where;  // file:line, for the reader of the report
  std::string model;
  std::string salt;    // separates caches as the model does
  std::string tenant;  // for the sums alone
  std::string hour;    // "2026-08-21 14h"; empty: unknown
  std::string prompt;  // canonical bytes, or the token ids of it, four bytes each
  bool token_ids = false;
  std::optional<int64_t> prompt_tokens;  // as reported
  std::optional<int64_t> cached_tokens;
};

struct AuditOptions {
  ReuseRule rule;
  int64_t alarm_after = 3;
  bool keep_text = false;                    // of what changed, in findings
  size_t prompt_bytes = size_t{128} << 20;   // of texts that are compared
  size_t history_blocks = size_t{32} << 20;  // of 64 B that are known to have been seen
};

class ReuseAudit {
 public:
  using Sums = std::map<std::string, ReuseSums>;
  /// More groups than this are summed as "(others)".
  static constexpr size_t kMaxGroups = 1000;
  /// Until a model's usage was seen.
  static constexpr double kDefaultBytesPerToken = 4;

  explicit ReuseAudit(const AuditOptions& options);

  /// What the request could have found, and has.
  struct Verdict {
    ReuseLevels levels;
    std::optional<Divergence> divergence;
  };
  Verdict Add(LoggedRequest request);

  const ReuseSums& total() const { return total_; }
  const Sums& by_model() const { return by_model_; }
  const Sums& by_tenant() const { return by_tenant_; }
  const Sums& by_hour() const { return by_hour_; }
  /// A family is named by the hash of the tools and system messages up to where its members part.
  const Sums& by_family() const { return by_family_; }
  std::vector<DivergencePlace> Findings() const { return tally_.Alarms(options_.alarm_after); }
  /// Hit rate that is possible once the finding is mended.
  double WhatIfRate(const DivergencePlace& finding) const;
  /// Requests whose tokens were not reported but taken from their bytes.
  int64_t estimated() const { return estimated_; }
  /// The bound on memory was reached: what was seen long before counts as new.
  bool forgotten() const { return any_key_.forgotten() || same_key_.forgotten(); }

 private:
  struct Spoken {
    int64_t bytes = 0;
    int64_t tokens = 0;
  };

  PromptSize SizeOf(const LoggedRequest& request);
  MatchedBytes SeenOf(const LoggedRequest& request, size_t equal_bytes);
  void Group(const LoggedRequest& request, const Verdict& verdict);
  void Tally(const LoggedRequest& request, const PromptSize& size, const Verdict& verdict);

  AuditOptions options_;
  PromptMemory memory_;
  PrefixHistory any_key_;
  PrefixHistory same_key_;
  DivergenceTally tally_;
  std::map<std::string, Spoken> spoken_;  // by model
  int64_t estimated_ = 0;
  ReuseSums total_;
  Sums by_model_, by_tenant_, by_hour_, by_family_;
};

}  // namespace kvring::router
