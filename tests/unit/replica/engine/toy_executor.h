// ToyExecutor: a "model" whose KV pool holds a number per position: a hash of the token and of the numbers
// that the position sees (all before it, or a window), read back through the block table. So a number stands
// for its whole history, as keys and values of deep layers do, and any fault in tables, copies, prefix reuse
// or positions changes the output. Test only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "common/random.h"
#include "replica/engine/executor.h"
#include "replica/kv/block_table.h"

namespace kvring::replica {

class ToyExecutor final : public Executor {
 public:
  explicit ToyExecutor(ExecutorLimits limits) : limits_(limits) {
    slots_.resize(static_cast<size_t>(limits.num_blocks) * limits.block_size);
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

  /// What a block holds.
  std::span<uint64_t> Block(BlockId block) {
    return {&Slot(block, 0), static_cast<size_t>(limits_.block_size)};
  }

  /// Added to one token's logit, everywhere: to make an end-of-sequence token likely.
  float bias = 0;
  TokenId biased_token = 0;
  int executions = 0;
  int fail_at = -1;
  int64_t computed_tokens = 0;

 private:
  uint64_t& Slot(BlockId block, int32_t slot) {
    return slots_[static_cast<size_t>(block.value) * limits_.block_size + slot];
  }
  uint64_t& At(const SequenceStep& step, int32_t position) {
    const BlockId block = step.block_table[position / limits_.block_size];
    EXPECT_NE(block, kNullBlock) << "position " << position << " is read, but given back";
    return Slot(block, position % limits_.block_size);
  }

  void Copy(const BlockCopy& copy) {
    for (int32_t i = 0; i < copy.tokens; ++i) Slot(copy.to, i) = Slot(copy.from, i);
  }

  /// Of positions [first, end).
  uint64_t Fold(const SequenceStep& step, int32_t first, int32_t end) {
    uint64_t fold = 0;
    for (int32_t p = first; p < end; ++p) fold = MixBits(fold ^ At(step, p));
    return fold;
  }

  void Compute(const SequenceStep& step) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    EXPECT_GT(count, 0);
    ASSERT_LE(step.first_position + count, static_cast<int32_t>(step.block_table.size()) * limits_.block_size)
        << "a table that does not reach as far as its step";
    computed_tokens += count;
    uint64_t before = limits_.window == 0 ? Fold(step, 0, step.first_position) : 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t p = step.first_position + i;
      if (limits_.window > 0) before = Fold(step, std::max(0, p - limits_.window + 1), p);
      const uint64_t number = MixBits(before + static_cast<uint64_t>(step.tokens[i]));
      At(step, p) = number;
      before = MixBits(before ^ number);
      if (i >= step.logits_from) AppendLogits(number);
    }
  }

  void AppendLogits(uint64_t history) {
    for (int32_t v = 0; v < limits_.vocab_size; ++v) {
      const uint64_t bits = MixBits(history + static_cast<uint64_t>(v));
      logits_.push_back(static_cast<float>(bits >> 40) * 0x1.0p-22f + (v == biased_token ? bias : 0));
    }
  }

  ExecutorLimits limits_;
  std::vector<uint64_t> slots_;
  std::vector<float> logits_;
};

}  // namespace kvring::replica
