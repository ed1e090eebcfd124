#include "router/policy/lmetric.h"

#include "router/policy/arg_min.h"

namespace kvring::router {

Pick Lmetric::Choose(const PickInput& input, Random& random) {
  const uint32_t slot = ArgMin(input.eligible, random, [&](uint32_t s) {
    const Replica& replica = *input.fleet.at(s);
    const int64_t tokens = replica.PendingTokens(input.now) + input.prompt_tokens - input.MatchedTokens(s);
    return static_cast<double>(tokens) * (replica.Requests(input.now) + 1);
  });
  return {.slot = slot, .reason = input.MatchedTokens(slot) > 0 ? Reason::kPrefix : Reason::kLeastLoad};
}

}  // namespace kvring::router
