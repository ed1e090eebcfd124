// What is kept of each request for operators: its story (DecisionRecord) and sums over all (Totals). Plain
// values.
#pragma once

#include <string>
#include <vector>

#include "router/fleet/outcome.h"
#include "router/policy/decision.h"

namespace kvring::router {

/// Where a session's name was found.
enum class SessionSource { kNone, kHeader, kGrpcField, kPromptCacheKey, kUser };

/// The story of one request, kept for the last `RouterConfig::kept_decisions`.
struct DecisionRecord {
  RequestId id;
  std::string name;
  std::string model;
  Instant at;
  SessionSource session_source = SessionSource::kNone;
  Decision decision;  // of the last attempt
  std::string replica_name;
  int attempts = 0;
  bool complete = false;
  OutcomeClass outcome = OutcomeClass::kOk;
  int64_t prompt_tokens = 0;   // reported
  int64_t cached_tokens = -1;  // reported; -1: not told
  int64_t completion_tokens = 0;
  Duration ttft{};  // 0: no first token
  Duration total{};
};

struct Totals {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t predicted_cached_tokens = 0;  // of requests whose cached tokens were reported
  uint64_t completion_tokens = 0;
  std::vector<uint64_t> outcomes;  // by OutcomeClass
  std::vector<uint64_t> reasons;   // by Reason
};

}  // namespace kvring::router
