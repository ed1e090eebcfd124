// TimedExecutor: an Executor without a model. It answers each step with deterministic tokens and says what
// the step would have cost, so that the simulator runs the real engine and advances its own clock:
//
//   cost = base + Σ per sequence ( per_prefill_token · tokens computed, if more than one
//                                + per_decode_sequence, if one
//                                + per_context_token · tokens read from the KV cache, at most a window )
//
// The token at position p of sequence s is a hash of (s, p): the same for any batching. Pure; not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/instant.h"
#include "replica/engine/executor.h"

namespace kvring::sim {

/// Coefficients in nanoseconds. The context term is per token already in the cache when the step begins.
struct StepCostModel {
  double base_ns = 0;
  double per_prefill_token_ns = 0;
  double per_decode_sequence_ns = 0;
  double per_context_token_ns = 0;
};

class TimedExecutor final : public replica::Executor {
 public:
  TimedExecutor(const replica::ExecutorLimits& limits, const StepCostModel& cost)
      : limits_(limits), cost_(cost) {}

  const replica::ExecutorLimits& limits() const override { return limits_; }
  absl::Status Execute(const replica::Batch& batch, replica::StepOutput& output) override;

  /// Of the last Execute.
  Duration last_cost() const { return last_cost_; }

  /// The token that a sequence gets after the one at `position`.
  static TokenId TokenAfter(SequenceId sequence, int32_t position, int32_t vocab_size);

 private:
  double CostOf(const replica::SequenceStep& step) const;

  replica::ExecutorLimits limits_;
  StepCostModel cost_;
  Duration last_cost_{};
};

}  // namespace kvring::sim
