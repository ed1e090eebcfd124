#include "sim/timed_executor.h"

#include <gtest/gtest.h>

namespace kvring::sim {
namespace {

constexpr replica::ExecutorLimits kLimits{
    .vocab_size = 1000, .context_length = 4096, .block_size = 16, .num_blocks = 8};

TEST(TimedExecutorTest, Cost_IsTheSumOfItsTerms) {
  TimedExecutor executor(kLimits, {.base_ns = 1e6,
                                   .per_prefill_token_ns = 100,
                                   .per_decode_sequence_ns = 5000,
                                   .per_context_token_ns = 3});
  const std::vector<TokenId> tokens(50, 1);
  replica::Batch batch;
  batch.steps.push_back({.id = {1}, .tokens = tokens, .first_position = 32, .logits_from = 50});
  batch.steps.push_back(
      {.id = {2}, .tokens = std::span(tokens).first(1), .first_position = 700, .logits_from = 0});
  replica::StepOutput output;
  ASSERT_TRUE(executor.Execute(batch, output).ok());
  EXPECT_EQ(executor.last_cost().count(), 1'000'000 + 50 * 100 + 32 * 3 + 5000 + 700 * 3);
  EXPECT_TRUE(output.logits.empty());
  EXPECT_EQ(output.tokens, std::vector<TokenId>{TimedExecutor::TokenAfter({2}, 700, 1000)});
}

TEST(TimedExecutorTest, Tokens_DoNotDependOnTheBatch) {
  TimedExecutor executor(kLimits, {});
  const std::vector<TokenId> tokens(10, 1);
  replica::StepOutput whole, part;
  ASSERT_TRUE(executor.Execute({{}, {{.id = {7}, .tokens = tokens, .logits_from = 0}}}, whole).ok());
  ASSERT_EQ(whole.tokens.size(), 10u);
  const auto tail = std::span(tokens).subspan(6);
  ASSERT_TRUE(
      executor.Execute({{}, {{.id = {7}, .tokens = tail, .first_position = 6, .logits_from = 3}}}, part)
          .ok());
  EXPECT_EQ(part.tokens, std::vector<TokenId>{whole.tokens[9]});
  EXPECT_NE(TimedExecutor::TokenAfter({7}, 5, 1000), TimedExecutor::TokenAfter({8}, 5, 1000));
}

}  // namespace
}  // namespace kvring::sim
