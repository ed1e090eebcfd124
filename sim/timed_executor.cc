#include "sim/timed_executor.h"

#include <algorithm>

#include "common/random.h"

namespace kvring::sim {

absl::Status TimedExecutor::Execute(const replica::Batch& batch, replica::StepOutput& output) {
  output.logits = {};
  output.tokens.clear();
  double cost_ns = cost_.base_ns;
  for (const replica::SequenceStep& step : batch.steps) {
    cost_ns += CostOf(step);
    const auto tokens = static_cast<int32_t>(step.tokens.size());
    for (int32_t i = step.logits_from; i < tokens; ++i) {
      output.tokens.push_back(TokenAfter(step.id, step.first_position + i, limits_.vocab_size));
    }
  }
  last_cost_ = Duration(static_cast<int64_t>(cost_ns));
  return absl::OkStatus();
}

TokenId TimedExecutor::TokenAfter(SequenceId sequence, int32_t position, int32_t vocab_size) {
  const uint64_t bits = MixBits(MixBits(sequence.value) + static_cast<uint64_t>(position));
  return static_cast<TokenId>(bits % static_cast<uint64_t>(vocab_size));
}

double TimedExecutor::CostOf(const replica::SequenceStep& step) const {
  const auto tokens = static_cast<double>(step.tokens.size());
  const double compute = tokens > 1 ? cost_.per_prefill_token_ns * tokens : cost_.per_decode_sequence_ns;
  const int32_t seen =
      limits_.window > 0 ? std::min(step.first_position, limits_.window) : step.first_position;
  return compute + cost_.per_context_token_ns * seen;
}

}  // namespace kvring::sim
