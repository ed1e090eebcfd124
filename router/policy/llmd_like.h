// LlmdLike: the scorers of llm-d's inference scheduler (Gateway API Inference Extension) at its weights 3 : 2
// : 2.
//
//   score_i = 3 · matched_i / prompt + 2 · (max Q − Q_i) / (max Q − min Q) + 2 · (1 − K_i), the largest wins,
//   ties drawn;  Q: requests that wait for their first token (1 for all where all are equal), K: share of the
//   KV cache in use
//
// Q and K are the replica's report while it is fresh; else this router's own counts, and K = 0 where the
// capacity is unknown.
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class LlmdLike : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

  static int32_t Waiting(const PickInput& input, uint32_t slot);
  static double KvUse(const PickInput& input, uint32_t slot);
  /// The best score among `slots`, which is not empty.
  static uint32_t Best(const PickInput& input, std::span<const uint32_t> slots, Random& random);
};

}  // namespace kvring::router
