#include "router/policy/dynamo_like.h"

#include "router/policy/arg_min.h"

namespace kvring::router {
namespace {

constexpr double kOverlapWeight = 1;
constexpr double kBlockTokens = 16;
constexpr double kPromptMemory = 0.02;  // weight of one request in the mean prompt

}  // namespace

Pick DynamoLike::Choose(const PickInput& input, Random& random) {
  const auto prompt = static_cast<double>(input.prompt_tokens);
  mean_prompt_ = mean_prompt_ == 0 ? prompt : mean_prompt_ + kPromptMemory * (prompt - mean_prompt_);
  const double mean_request = mean_prompt_ + input.mean_output_tokens;
  const uint32_t slot = ArgMin(input.eligible, random, [&](uint32_t s) {
    const Replica& replica = *input.fleet.at(s);
    const int64_t prefill = replica.PendingTokens(input.now) + input.prompt_tokens - input.MatchedTokens(s);
    const double active = replica.load_fresh(input.now) ? static_cast<double>(replica.report.kv_used_tokens)
                                                        : replica.load.in_flight * mean_request;
    return (kOverlapWeight * static_cast<double>(prefill) + active) / kBlockTokens;
  });
  return {.slot = slot, .reason = input.MatchedTokens(slot) > 0 ? Reason::kPrefix : Reason::kLeastLoad};
}

}  // namespace kvring::router
