// UsageBreakdown: the tokens of one request by what they cost, whatever convention they were reported in:
//
//   cached inside (OpenAI)            prompt_tokens, prompt_tokens_details.cached_tokens, completion_tokens
//   cached inside (OpenAI Responses)  input_tokens, input_tokens_details.cached_tokens, output_tokens
//   cached beside (Anthropic)         input_tokens, cache_read_input_tokens, cache_creation_input_tokens,
//                                     output_tokens
//
// so that a prompt token is counted once: input() = fresh + read + write in both. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring::openai {

struct UsageBreakdown {
  int64_t fresh = 0;        // prompt tokens that were computed, and not said to be written to a cache
  int64_t read = 0;         // prompt tokens found in a cache
  int64_t write = 0;        // prompt tokens computed and written to a cache at a price of their own
  int64_t output = 0;       // generated
  bool cache_told = false;  // a field that counts cached tokens was there; else read is 0 by default

  int64_t input() const { return fresh + read + write; }
  int64_t total() const { return input() + output; }
  /// Share of the prompt that was found; 0 for an empty one.
  double hit_rate() const {
    return input() == 0 ? 0 : static_cast<double>(read) / static_cast<double>(input());
  }
};

/// Reads a `usage` object. InvalidArgument names the field: one that is missing, no count, or from the other
/// convention, and more cached than prompt tokens.
absl::StatusOr<UsageBreakdown> ReadUsageBreakdown(std::string_view json);

}  // namespace kvring::openai
