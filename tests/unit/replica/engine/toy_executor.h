// ToyExecutor: a "model" whose KV pool holds token ids. The logits of a position are a hash of its whole
// history, read back through the block table: any fault in tables, copies, prefix reuse or positions changes
// the output. Test only.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/random.h"
#include "replica/engine/executor.h"

namespace kvring::replica {

class ToyExecutor final : public Executor {
 public:
  explicit ToyExecutor(ExecutorLimits limits) : limits_(limits) {
    slots_.assign(static_cast<size_t>(limits.num_blocks) * limits.block_size, -1);
  }

  const ExecutorLimits& limits() const override { return limits_; }

  absl::Status Execute(const Batch& batch, StepOutput& output) override {
    ++executions;
    if (fail_at == executions) return absl::InternalError("device lost");
    logits_.clear();
    for (const BlockCopy& copy : batch.copies) Copy(copy);
    std::set<uint64_t> seen;
    for (const SequenceStep& step : batch.steps) {
      EXPECT_TRUE(seen.insert(step.id.value).second) << "a sequence twice in one batch";
      Compute(step);
    }
    output.logits = logits_;
    return absl::OkStatus();
  }

  /// Added to one token's logit, everywhere: to make an end-of-sequence token likely.
  float bias = 0;
  TokenId biased_token = 0;
  int executions = 0;
  int fail_at = -1;
  int64_t computed_tokens = 0;

 private:
  TokenId& Slot(BlockId block, int32_t slot) {
    return slots_[static_cast<size_t>(block.value) * limits_.block_size + slot];
  }
  TokenId& At(const SequenceStep& step, int32_t position) {
    return Slot(step.block_table[position / limits_.block_size], position % limits_.block_size);
  }

  void Copy(const BlockCopy& copy) {
    for (int32_t i = 0; i < copy.tokens; ++i) Slot(copy.to, i) = Slot(copy.from, i);
  }

  void Compute(const SequenceStep& step) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    EXPECT_GT(count, 0);
    computed_tokens += count;
    for (int32_t i = 0; i < count; ++i) At(step, step.first_position + i) = step.tokens[i];
    uint64_t history = 0;
    for (int32_t p = 0; p < step.first_position + count; ++p) {
      history = MixBits(history ^ static_cast<uint64_t>(At(step, p)));
      if (p >= step.first_position + step.logits_from) AppendLogits(history);
    }
  }

  void AppendLogits(uint64_t history) {
    for (int32_t v = 0; v < limits_.vocab_size; ++v) {
      const uint64_t bits = MixBits(history + static_cast<uint64_t>(v));
      logits_.push_back(static_cast<float>(bits >> 40) * 0x1.0p-22f + (v == biased_token ? bias : 0));
    }
  }

  ExecutorLimits limits_;
  std::vector<TokenId> slots_;
  std::vector<float> logits_;
};

}  // namespace kvring::replica
