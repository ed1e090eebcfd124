// CheckRequest: whether an EngineRequest can ever be served, decided once, at Engine::Add. Pure functions.
//
//   prompt + max_tokens <= limit     limit = the model's context or the whole KV pool, whichever is less
//   max_tokens absent                as many as fit, at least 1
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "replica/engine/request.h"

namespace kvring::replica {

inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr Duration kMaxCacheTtl = std::chrono::hours(24);

struct RequestLimits {
  int32_t vocab_size = 0;
  int32_t max_tokens_per_sequence = 0;
  int32_t max_choices = 0;
  bool cap_max_tokens = false;  // an output that does not fit is shortened instead of refused
};

/// InvalidArgument names the field. OutOfRange is context_length_exceeded and names limit, prompt and
/// requested counts.
absl::Status CheckRequest(const EngineRequest& request, const RequestLimits& limits);

/// Output tokens of a request that CheckRequest has let pass.
int32_t ResolveMaxTokens(const EngineRequest& request, const RequestLimits& limits);

}  // namespace kvring::replica
