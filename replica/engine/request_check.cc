#include "replica/engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

absl::Status Require(bool condition, const char* field, const char* rule) {
  return condition ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(field, " must be ", rule));
}

// No early end: a loop without branches goes over a long prompt many tokens at a time.
bool AllBelow(std::span<const TokenId> tokens, int32_t vocab_size) {
  uint32_t beyond = 0;
  for (const TokenId token : tokens)
    beyond |= static_cast<uint32_t>(token) >= static_cast<uint32_t>(vocab_size);
  return beyond == 0;
}

absl::Status CheckTokens(const EngineRequest& request, int32_t vocab_size) {
  const auto known = [&](TokenId token) { return token >= 0 && token < vocab_size; };
  if (request.prompt.empty()) return absl::InvalidArgumentError("prompt must not be empty");
  if (!AllBelow(request.prompt, vocab_size)) {
    const auto unknown = std::ranges::find_if_not(request.prompt, known);
    return absl::InvalidArgumentError(absl::StrCat("prompt: token ", *unknown, " at position ",
                                                   unknown - request.prompt.begin(),
                                                   " is outside the vocabulary of ", vocab_size));
  }
  KVRING_RETURN_IF_ERROR(
      Require(std::ranges::all_of(request.eos_tokens, known), "eos_tokens", "tokens of the vocabulary"));
  const auto& bias = request.sampling.logit_bias;
  const bool biased =
      std::ranges::all_of(bias, [&](const auto& b) { return known(b.first) && !std::isnan(b.second); });
  return Require(biased, "logit_bias", "numbers for tokens of the vocabulary");
}

absl::Status CheckSampling(const SamplingParams& p) {
  const auto penalty = [](float x) { return x >= -2 && x <= 2; };
  KVRING_RETURN_IF_ERROR(
      Require(p.temperature >= 0 && std::isfinite(p.temperature), "temperature", "finite and >= 0"));
  KVRING_RETURN_IF_ERROR(Require(p.top_k >= 0, "top_k", ">= 0"));
  KVRING_RETURN_IF_ERROR(Require(p.top_p > 0 && p.top_p <= 1, "top_p", "in (0, 1]"));
  KVRING_RETURN_IF_ERROR(Require(p.min_p >= 0 && p.min_p < 1, "min_p", "in [0, 1)"));
  KVRING_RETURN_IF_ERROR(Require(penalty(p.frequency_penalty), "frequency_penalty", "in [-2, 2]"));
  KVRING_RETURN_IF_ERROR(Require(penalty(p.presence_penalty), "presence_penalty", "in [-2, 2]"));
  KVRING_RETURN_IF_ERROR(Require(p.min_tokens >= 0, "min_tokens", ">= 0"));
  const int32_t logprobs = p.logprobs.value_or(0);
  return Require(logprobs >= 0 && logprobs <= kMaxLogprobs, "logprobs", "in [0, 20]");
}

absl::Status CheckRetention(const CacheRetention& retention) {
  const bool lasts = retention.retention >= Retention::kHigh;
  const bool bounded = retention.ttl > Duration{0} && retention.ttl <= kMaxCacheTtl;
  return Require(lasts ? bounded : retention.ttl == Duration{0}, "cache_retention.ttl_s",
                 "from 1 to 86400 for high and pinned, and absent for low and normal");
}

absl::Status CheckLength(const EngineRequest& request, const RequestLimits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t least = request.max_tokens == 0 ? 0 : 1;
  const int64_t asked =
      request.max_tokens.has_value() && !limits.cap_max_tokens ? *request.max_tokens : least;
  if (prompt + asked <= limits.max_tokens_per_sequence) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("This model's maximum context length is ",
                                            limits.max_tokens_per_sequence, " tokens, but ", prompt + asked,
                                            " tokens were requested (", prompt, " in the prompt, ", asked,
                                            " for the completion)."));
}

}  // namespace

absl::Status CheckRequest(const EngineRequest& request, const RequestLimits& limits) {
  KVRING_RETURN_IF_ERROR(CheckTokens(request, limits.vocab_size));
  KVRING_RETURN_IF_ERROR(CheckSampling(request.sampling));
  if (request.n < 1 || request.n > limits.max_choices) {
    return absl::InvalidArgumentError(absl::StrCat("n must be in [1, ", limits.max_choices, "]"));
  }
  KVRING_RETURN_IF_ERROR(CheckRetention(request.retention));
  KVRING_RETURN_IF_ERROR(Require(request.max_tokens.value_or(1) >= 0, "max_tokens", ">= 0"));
  return CheckLength(request, limits);
}

int32_t ResolveMaxTokens(const EngineRequest& request, const RequestLimits& limits) {
  const int32_t room = limits.max_tokens_per_sequence - static_cast<int32_t>(request.prompt.size());
  return std::min(request.max_tokens.value_or(room), room);
}

}  // namespace kvring::replica
