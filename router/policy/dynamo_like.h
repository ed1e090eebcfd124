// DynamoLike: the cost of NVIDIA Dynamo's KV router (kv_overlap_score_weight 1, temperature 0).
//
//   cost_i = 1 · (W_i + u_i) / 16 + A_i, the lowest wins, ties drawn
//   W: prefill tokens dispatched and pending, u: uncached tokens of this prompt, A: blocks of 16 tokens that
//   running requests hold
//
// A is the replica's report while it is fresh; else requests in flight · the mean prompt and output.
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class DynamoLike : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  double mean_prompt_ = 0;  // tokens
};

}  // namespace kvring::router
