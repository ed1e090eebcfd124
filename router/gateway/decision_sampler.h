// DecisionSampler: completes requests at the core and writes the story of a share of them to the log, one
// line each: where it went and why, the candidates with what each held and would have cost, what was
// predicted, and what the engine then reported. No text of prompt or answer. Which requests: by a hash of
// their number, so the sample is fair and a request is in it or not whatever happens to it. Thread-safe.
#pragma once

#include <span>
#include <string>

#include "router/gateway/router_guard.h"

namespace kvring::router {

class DecisionSampler {
 public:
  /// share: 0 none, 1 all.
  explicit DecisionSampler(double share) : share_(share) {}

  bool Takes(RequestId request) const;
  /// Router::OnComplete, and the line where the request is of the sample.
  void Complete(RouterGuard& guard, RequestId request, const CompletionReport& report, Instant now) const;

 private:
  const double share_;
};

/// "r-1a2b3c4d:512t:0.013s,…": name, matched tokens, cost; the chosen one first.
std::string CandidatesText(std::span<const Candidate> candidates, std::span<const ReplicaView> views);

}  // namespace kvring::router
