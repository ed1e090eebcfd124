#include "router/policy/least_load.h"

#include "router/policy/arg_min.h"

namespace kvring::router {
namespace {

double RequestsPerWeight(const PickInput& input, uint32_t slot) {
  const Replica& replica = *input.fleet.at(slot);
  return (replica.Requests(input.now) + 1) / replica.weight;
}

}  // namespace

Pick LeastRequests::Choose(const PickInput& input, Random& random) {
  const uint32_t slot =
      ArgMin(input.eligible, random, [&](uint32_t s) { return RequestsPerWeight(input, s); });
  return {.slot = slot, .reason = Reason::kLeastLoad};
}

Pick LeastPrefillTokens::Choose(const PickInput& input, Random& random) {
  const auto cost = [&](uint32_t slot) {
    const Replica& replica = *input.fleet.at(slot);
    const int64_t uncached = input.prompt_tokens - input.MatchedTokens(slot);
    return static_cast<double>(replica.PendingTokens(input.now) + uncached) /
           input.fleet.PrefillRateOf(replica);
  };
  return {.slot = ArgMin(input.eligible, random, cost), .reason = Reason::kLeastLoad};
}

Pick PowerOfTwo::Choose(const PickInput& input, Random& random) {
  const size_t n = input.eligible.size();
  const size_t first = random.Below(n);
  const size_t second = n == 1 ? first : (first + 1 + random.Below(n - 1)) % n;
  const uint32_t a = input.eligible[first], b = input.eligible[second];
  return {.slot = RequestsPerWeight(input, b) < RequestsPerWeight(input, a) ? b : a,
          .reason = Reason::kLeastLoad};
}

}  // namespace kvring::router
