#include "router/policy/llmd_like.h"

#include <algorithm>

#include "router/policy/arg_min.h"

namespace kvring::router {
namespace {

constexpr double kPrefixWeight = 3, kQueueWeight = 2, kKvWeight = 2;

}  // namespace

int32_t LlmdLike::Waiting(const PickInput& input, uint32_t slot) {
  const Replica& replica = *input.fleet.at(slot);
  return replica.load_fresh(input.now) ? replica.report.waiting : replica.load.awaiting_first_token;
}

double LlmdLike::KvUse(const PickInput& input, uint32_t slot) {
  const Replica& replica = *input.fleet.at(slot);
  if (replica.kv_tokens <= 0) return 0;
  const int64_t used =
      replica.load_fresh(input.now) ? replica.report.kv_used_tokens : replica.load.pending_kv_tokens;
  return std::clamp(static_cast<double>(used) / static_cast<double>(replica.kv_tokens), 0.0, 1.0);
}

uint32_t LlmdLike::Best(const PickInput& input, std::span<const uint32_t> slots, Random& random) {
  int32_t most = 0, least = INT32_MAX;
  for (const uint32_t slot : slots) {
    most = std::max(most, Waiting(input, slot));
    least = std::min(least, Waiting(input, slot));
  }
  return ArgMin(slots, random, [&](uint32_t slot) {
    const double prefix =
        static_cast<double>(input.MatchedTokens(slot)) / static_cast<double>(input.prompt_tokens);
    const double queue =
        most == least ? 1 : static_cast<double>(most - Waiting(input, slot)) / (most - least);
    return -(kPrefixWeight * prefix + kQueueWeight * queue + kKvWeight * (1 - KvUse(input, slot)));
  });
}

Pick LlmdLike::Choose(const PickInput& input, Random& random) {
  const uint32_t slot = Best(input, input.eligible, random);
  return {.slot = slot, .reason = input.MatchedTokens(slot) > 0 ? Reason::kPrefix : Reason::kLeastLoad};
}

}  // namespace kvring::router
