// LlmdSticky: llm-d's sticky-until-saturated: the deepest holder keeps its prefix until it is saturated, by
// the default thresholds of the Gateway API Inference Extension's saturation detector.
//
//   saturated: more than 5 requests wait for their first token, or more than 0.8 of the KV cache is in use
//   candidates = the deepest holders that are not saturated; if none, all that are not; if none, all
//   among candidates the score of LlmdLike (llmd_like.h) decides
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class LlmdSticky : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  std::vector<uint32_t> slots_;  // of the choice under way
};

}  // namespace kvring::router
