#include "router/gateway/decision_sampler.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/absl_view.h"
#include "common/random.h"
#include "common/runtime/log.h"

namespace kvring::router {
namespace {

void LogStory(const DecisionRecord& story, std::span<const ReplicaView> views) {
  const Decision& decision = story.decision;
  Log(LogLevel::kInfo, "router", "decision",
      {{"request", story.name},
       {"model", story.model},
       {"replica", story.replica_name},
       {"reason", decision.replica ? ReasonName(decision.reason) : RefusalName(decision.refusal)},
       {"attempts", story.attempts},
       {"outcome", OutcomeName(story.outcome)},
       {"estimated_prompt_tokens", decision.prompt_tokens},
       {"predicted_cached_tokens", decision.predicted_cached_tokens},
       {"exact", decision.prediction_exact ? "yes" : "no"},
       {"prompt_tokens", story.prompt_tokens},
       {"cached_tokens", story.cached_tokens < 0 ? "not told" : std::to_string(story.cached_tokens)},
       {"completion_tokens", story.completion_tokens},
       {"ttft_ms", ToMillis(story.ttft)},
       {"total_ms", ToMillis(story.total)},
       {"candidates", CandidatesText(decision.candidates, views)}});
}

}  // namespace

bool DecisionSampler::Takes(RequestId request) const {
  constexpr double kHashes = 18446744073709551616.0;  // 2^64
  return static_cast<double>(MixBits(request.value)) < share_ * kHashes;
}

void DecisionSampler::Complete(RouterGuard& guard, RequestId request, const CompletionReport& report,
                               Instant now) const {
  if (!Takes(request)) return guard.With([&](Router& router) { router.OnComplete(request, report, now); });
  std::vector<ReplicaView> views;
  const std::optional<DecisionRecord> story = guard.With([&](Router& router) {
    router.OnComplete(request, report, now);
    views = router.Replicas(now);
    return router.Story(request);
  });
  if (story) LogStory(*story, views);
}

std::string CandidatesText(std::span<const Candidate> candidates, std::span<const ReplicaView> views) {
  std::string text;
  for (const Candidate& candidate : candidates) {
    const auto view = std::find_if(views.begin(), views.end(),
                                   [&](const ReplicaView& v) { return v.id == candidate.replica; });
    absl::StrAppend(&text, text.empty() ? "" : ",",
                    view != views.end() ? view->name : absl::StrCat("#", candidate.replica.value), ":",
                    candidate.matched_tokens, "t:", absl::StrFormat("%.4gs", candidate.cost_s));
  }
  return text;
}

}  // namespace kvring::router
