#include "router/policy/policy.h"

#include <algorithm>

#include "router/policy/cache_aware.h"
#include "router/policy/dynamo_like.h"
#include "router/policy/kubeai_chwbl.h"
#include "router/policy/least_load.h"
#include "router/policy/llmd_like.h"
#include "router/policy/llmd_sticky.h"
#include "router/policy/lmetric.h"
#include "router/policy/ring_policies.h"
#include "router/policy/sglang_like.h"
#include "router/policy/simple.h"

namespace kvring::router {

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kSession:
      return "session";
    case Reason::kPrefix:
      return "prefix";
    case Reason::kRing:
      return "ring";
    case Reason::kLeastLoad:
      return "least_load";
    case Reason::kSpill:
      return "spill";
    case Reason::kCold:
      return "cold";
    case Reason::kRetry:
      return "retry";
  }
  return "unknown";
}

std::string_view RefusalName(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kNoEndpoints:
      return "no_endpoints";
    case Refusal::kQueueFull:
      return "queue_full";
    case Refusal::kQueueTimeout:
      return "queue_timeout";
    case Refusal::kLimit:
      return "limit";
  }
  return "unknown";
}

int64_t PickInput::MatchedTokens(uint32_t slot) const {
  const double bytes = static_cast<double>(belief.index().DepthOf(path, slot)) * kIndexBlockBytes;
  const int64_t told = belief.ToldTokens(*fleet.at(slot));
  return std::min(std::max(static_cast<int64_t>(bytes / bytes_per_token), told), prompt_tokens - 1);
}

bool PickInput::IsEligible(uint32_t slot) const {
  return std::binary_search(eligible.begin(), eligible.end(), slot);
}

std::vector<std::string> PolicyNames() {
  return {"cache-aware",  "round-robin",  "random",      "least-requests", "least-prefill-tokens",
          "power-of-two", "session-ring", "prefix-ring", "sglang-like",    "llmd-like",
          "llmd-sticky",  "dynamo-like",  "lmetric",     "kubeai-chwbl"};
}

std::unique_ptr<Policy> MakePolicy(std::string_view name) {
  if (name == "cache-aware") return std::make_unique<CacheAware>();
  if (name == "round-robin") return std::make_unique<RoundRobin>();
  if (name == "random") return std::make_unique<RandomChoice>();
  if (name == "least-requests") return std::make_unique<LeastRequests>();
  if (name == "least-prefill-tokens" || name == "lpwl") return std::make_unique<LeastPrefillTokens>();
  if (name == "power-of-two") return std::make_unique<PowerOfTwo>();
  if (name == "session-ring") return std::make_unique<SessionRing>();
  if (name == "prefix-ring") return std::make_unique<PrefixRing>();
  if (name == "sglang-like") return std::make_unique<SglangLike>();
  if (name == "llmd-like") return std::make_unique<LlmdLike>();
  if (name == "llmd-sticky") return std::make_unique<LlmdSticky>();
  if (name == "dynamo-like") return std::make_unique<DynamoLike>();
  if (name == "lmetric") return std::make_unique<Lmetric>();
  if (name == "kubeai-chwbl") return std::make_unique<KubeaiChwbl>();
  return nullptr;
}

}  // namespace kvring::router
