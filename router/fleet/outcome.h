// How requests and attempts end, and what replicas report of them. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/instant.h"

namespace kvring::router {

/// How a request or an attempt ended. The classes add up to all requests.
enum class OutcomeClass {
  kOk,
  kClientError,
  kBackpressure,
  kReplicaError,
  kStreamError,
  kClientAbort,
  kTimeout,
  kRefused
};
inline constexpr int kOutcomeClasses = 8;
std::string_view OutcomeName(OutcomeClass outcome);

/// What the engine told at first admission, or at completion (then with the generated text).
struct AdmittedReport {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  std::span<const uint32_t> block_end_bytes;  // empty for foreign engines
};

struct UsageReport {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  std::optional<int32_t> cached_tokens;  // absent: the engine does not report it
  std::span<const uint32_t> block_end_bytes;
  std::string_view generated_bytes;  // text of choice 0, continuing the canonical prompt; empty when unknown
};

struct CompletionReport {
  OutcomeClass outcome = OutcomeClass::kOk;
  std::optional<UsageReport> usage;
  std::string_view generated_bytes;  // as in UsageReport, where no usage was told
};

struct AttemptFailure {
  OutcomeClass outcome = OutcomeClass::kReplicaError;  // kBackpressure cools, others eject
  Duration retry_after{};                              // told by a busy replica; 0: none
};

}  // namespace kvring::router
