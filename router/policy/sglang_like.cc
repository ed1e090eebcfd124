#include "router/policy/sglang_like.h"

#include <algorithm>
#include <limits>

#include "router/policy/arg_min.h"

namespace kvring::router {
namespace {

constexpr int32_t kBalanceAbs = 64;
constexpr double kBalanceRel = 1.5;
constexpr double kCacheThreshold = 0.3;

bool Imbalanced(const PickInput& input) {
  int32_t least = std::numeric_limits<int32_t>::max(), most = 0;
  for (const uint32_t slot : input.eligible) {
    const int32_t n = input.fleet.at(slot)->Requests(input.now);
    least = std::min(least, n);
    most = std::max(most, n);
  }
  return most - least > kBalanceAbs && most > kBalanceRel * least;
}

}  // namespace

Pick SglangLike::Choose(const PickInput& input, Random& random) {
  const auto load = [&](uint32_t slot) { return input.fleet.at(slot)->Requests(input.now); };
  if (Imbalanced(input)) return {.slot = ArgMin(input.eligible, random, load), .reason = Reason::kSpill};
  const uint32_t deepest = ArgMin(
      input.eligible, random, [&](uint32_t slot) { return -static_cast<double>(input.MatchedTokens(slot)); });
  const auto matched = static_cast<double>(input.MatchedTokens(deepest));
  if (matched > kCacheThreshold * static_cast<double>(input.prompt_tokens))
    return {.slot = deepest, .reason = Reason::kPrefix};
  return {.slot = ArgMin(input.eligible, random, load), .reason = Reason::kLeastLoad};
}

}  // namespace kvring::router
