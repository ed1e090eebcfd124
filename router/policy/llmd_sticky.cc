#include "router/policy/llmd_sticky.h"

#include <algorithm>

#include "router/policy/llmd_like.h"

namespace kvring::router {
namespace {

constexpr int32_t kQueueThreshold = 5;
constexpr double kKvThreshold = 0.8;

bool Saturated(const PickInput& input, uint32_t slot) {
  return LlmdLike::Waiting(input, slot) > kQueueThreshold || LlmdLike::KvUse(input, slot) > kKvThreshold;
}

}  // namespace

Pick LlmdSticky::Choose(const PickInput& input, Random& random) {
  int64_t deepest = 0;
  for (const uint32_t slot : input.eligible) deepest = std::max(deepest, input.MatchedTokens(slot));
  slots_.clear();
  for (const uint32_t slot : input.eligible) {
    if (deepest > 0 && input.MatchedTokens(slot) == deepest && !Saturated(input, slot))
      slots_.push_back(slot);
  }
  if (!slots_.empty()) return {.slot = LlmdLike::Best(input, slots_, random), .reason = Reason::kPrefix};
  for (const uint32_t slot : input.eligible) {
    if (!Saturated(input, slot)) slots_.push_back(slot);
  }
  const uint32_t slot = LlmdLike::Best(input, slots_.empty() ? input.eligible : slots_, random);
  return {.slot = slot, .reason = deepest > 0 ? Reason::kSpill : Reason::kLeastLoad};
}

}  // namespace kvring::router
