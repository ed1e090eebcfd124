#include "router/policy/ring_policies.h"

namespace kvring::router {
namespace {

constexpr size_t kHeadBlocks = 4;

uint64_t HeadKey(const PromptKey& prompt) {
  if (prompt.chain.empty()) return ChainNext(prompt.root, prompt.bytes).value;
  return prompt.chain[std::min(prompt.chain.size(), kHeadBlocks) - 1].value;
}

Pick OnRing(Ring& ring, uint64_t key, const PickInput& input, Reason reason) {
  ring.Sync(input.fleet);
  const Ring::BoundedPick pick = ring.ChooseBounded(key, input.eligible, input.fleet, input.now);
  return {.slot = pick.slot, .reason = pick.spilled ? Reason::kSpill : reason};
}

}  // namespace

Pick SessionRing::Choose(const PickInput& input, Random&) {
  if (!input.session) return OnRing(ring_, HeadKey(input.prompt), input, Reason::kRing);
  return OnRing(ring_, input.session->value, input, Reason::kSession);
}

Pick PrefixRing::Choose(const PickInput& input, Random&) {
  return OnRing(ring_, HeadKey(input.prompt), input, Reason::kRing);
}

}  // namespace kvring::router
