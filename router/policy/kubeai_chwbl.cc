#include "router/policy/kubeai_chwbl.h"

namespace kvring::router {
namespace {
constexpr size_t kPrefixChars = 100;
}  // namespace

Pick KubeaiChwbl::Choose(const PickInput& input, Random&) {
  ring_.Sync(input.fleet);
  const uint64_t key = ChainNext(input.prompt.root, input.prompt.bytes.substr(0, kPrefixChars)).value;
  const Ring::BoundedPick pick = ring_.ChooseBounded(key, input.eligible, input.fleet, input.now);
  return {.slot = pick.slot, .reason = pick.spilled ? Reason::kSpill : Reason::kRing};
}

}  // namespace kvring::router
