// Scheduling at large, on the timed executor.
#include "replica/engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/timed_executor.h"
#include "tests/unit/replica/engine/engine_driver.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 50'000;

sim::TimedExecutor Executor(int32_t num_blocks, int32_t context = 1 << 20) {
  return sim::TimedExecutor(
      {.vocab_size = kVocabulary, .context_length = context, .block_size = 16, .num_blocks = num_blocks},
      {.base_ns = 1e6});
}

EngineRequest Fixed(uint64_t id, int32_t prompt, int32_t output) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt, kVocabulary), output);
  request.ignore_eos = true;
  return request;
}

TEST(SchedulerTest, FullPool_AllFinishWithFewPreemptions_SCH01) {
  sim::TimedExecutor executor = Executor(100);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 512, .max_running = 64}});
  for (uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 200, 800)).ok());
  driver.Run(10'001);
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(driver.answers[id].choices[0].size(), 800u);
  EXPECT_LE(driver.steps, 10'000);
  EXPECT_LE(driver.preemptions, 120);
  RecordProperty("steps", std::to_string(driver.steps));
  RecordProperty("preemptions", std::to_string(driver.preemptions));
}

// The scheduler alone, so that preemptions can be seen per sequence.
TEST(SchedulerTest, FullPool_NoSequenceIsPreemptedMoreThanTenTimes_SCH01) {
  BlockManager blocks({.num_blocks = 100, .block_size = 16});
  Scheduler scheduler({.max_batch_tokens = 512, .max_running = 64}, blocks);
  ActiveRequest request;
  std::vector<Sequence> sequences(20);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].request = &request;
    sequences[i].rank.arrival = i;
    sequences[i].tokens = RandomPrompt(i, 200, kVocabulary);
    sequences[i].prompt_tokens = 200;
    sequences[i].prompt_rows_done = INT32_MAX;
    scheduler.Enqueue(sequences[i]);
  }
  int steps = 0;
  for (size_t finished = 0; finished < sequences.size(); ++steps) {
    ASSERT_LT(steps, 10'000);
    const StepPlan& plan = scheduler.Plan({});
    ASSERT_FALSE(plan.items.empty());
    for (const auto& [sequence, tokens] : plan.items) {
      sequence->computed += tokens;
      blocks.Commit(sequence->table, sequence->tokens, sequence->computed);
      if (sequence->pending() > 0) continue;
      sequence->tokens.push_back(static_cast<TokenId>(sequence->length()));
      if (sequence->output_tokens() < 800) continue;
      scheduler.Remove(*sequence);
      ++finished;
    }
  }
  int most = 0;
  for (const Sequence& sequence : sequences) most = std::max(most, sequence.preemptions);
  EXPECT_LE(most, 10);
  EXPECT_EQ(blocks.used_blocks(), 0);
}

// Pool 200: a holder has 100, G wants 150. Small ones of 2 blocks pass G, but not for ever.
TEST(SchedulerTest, HugeHead_SmallOnesPassAtMostSixteenTimes_SCH03) {
  sim::TimedExecutor executor = Executor(200);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 4096, .max_running = 64}});
  ASSERT_TRUE(driver.Add(Fixed(1, 1500, 90)).ok());  // 94 to 100 blocks
  driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(2, 2390, 10)).ok());  // G
  for (uint64_t id = 100; id < 150; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 20, 12)).ok());
  int passed_before_g = 0;
  uint64_t next = 1000;
  while (driver.engine.HasWork() && driver.steps < 3000) {
    driver.Step();
    if (driver.steps % 20 == 0 && next < 1100) {  // 5 per second
      ASSERT_TRUE(driver.Add(Fixed(next++, 20, 12)).ok());
    }
    if (driver.answers[2].admitted.has_value()) continue;
    passed_before_g = 0;
    for (const auto& [id, answer] : driver.answers)
      passed_before_g += id >= 100 && answer.admitted.has_value();
  }
  EXPECT_FALSE(driver.engine.HasWork());
  EXPECT_EQ(passed_before_g, 16);
  EXPECT_LT(driver.answers[2].admitted->queued, std::chrono::seconds(10));
}

TEST(SchedulerTest, HugeHead_NobodyPassesAfterTenSeconds_SCH03) {
  sim::TimedExecutor executor = Executor(200);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 4096, .max_running = 64}});
  driver.step_time = std::chrono::seconds(1);
  ASSERT_TRUE(driver.Add(Fixed(1, 1500, 90)).ok());
  driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(2, 2390, 10)).ok());
  int passed = 0;
  for (uint64_t id = 100; !driver.answers[2].admitted.has_value(); ++id) {
    ASSERT_LT(driver.steps, 200);
    ASSERT_TRUE(driver.Add(Fixed(id, 20, 1)).ok());  // one a second
    driver.Step();
    if (!driver.answers[2].admitted.has_value()) passed += driver.answers[id].admitted.has_value();
  }
  EXPECT_EQ(passed, 10);
}

TEST(SchedulerTest, StrictOrder_NobodyPasses_SCH03) {
  sim::TimedExecutor executor = Executor(200);
  EngineDriver driver(executor,
                      {.scheduler = {.max_batch_tokens = 4096, .max_running = 64, .max_bypasses = 0}});
  ASSERT_TRUE(driver.Add(Fixed(1, 1500, 90)).ok());
  driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(2, 2390, 10)).ok());
  ASSERT_TRUE(driver.Add(Fixed(3, 20, 1)).ok());
  while (!driver.answers[2].admitted.has_value()) {
    EXPECT_FALSE(driver.answers[3].admitted.has_value());
    driver.Step();
  }
  driver.Run();
}

// 8 decodes of 4 blocks each grow while a prompt of 30 blocks is prefilled in chunks.
TEST(SchedulerTest, LongPromptBesideGrowingDecodes_GapStaysBounded_SCH05) {
  sim::TimedExecutor executor = Executor(64);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 72, .max_running = 16}});
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 55, 60)).ok());
  for (int i = 0; i < 10; ++i) driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(9, 480, 20)).ok());
  driver.Run();
  for (uint64_t id = 1; id <= 8; ++id) {
    const std::vector<int64_t>& at = driver.answers[id].token_steps;
    ASSERT_EQ(at.size(), 60u);
    for (size_t i = 1; i < at.size(); ++i)
      EXPECT_LE(at[i] - at[i - 1], 2) << "request " << id << " token " << i;
  }
  EXPECT_EQ(driver.answers[9].choices[0].size(), 20u);
}

// However long a prompt is: a step holds no more than the budget, and every decode goes on in every step.
TEST(SchedulerTest, LongPrompt_DecodesGoOnInEveryStep_StepsKeepTheBudget) {
  sim::TimedExecutor executor = Executor(2000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 72, .max_running = 16}});
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 20, 200)).ok());
  for (int i = 0; i < 10; ++i) driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(9, 10'000, 5)).ok());
  while (driver.engine.HasWork()) {
    const StepReport report = driver.Step();
    ASSERT_LE(report.prefill_tokens + report.decode_tokens, 72);
  }
  for (uint64_t id = 1; id <= 8; ++id) {
    const std::vector<int64_t>& at = driver.answers[id].token_steps;
    EXPECT_EQ(at.back() - at.front(), 199) << id;
  }
  EXPECT_EQ(driver.answers[9].choices[0].size(), 5u);
}

TEST(SchedulerTest, NoMaxTokens_EndsAtTheContext_SCH07) {
  sim::TimedExecutor executor = Executor(64, /*context=*/128);
  EngineDriver driver(executor, {});
  EngineRequest request = Fixed(1, 100, 1);
  request.max_tokens.reset();
  const Answer answer = driver.RunOne(request);
  EXPECT_EQ(answer.choices[0].size(), 28u);
  EXPECT_EQ(answer.reasons[0], FinishReason::kLength);
  request = Fixed(2, 127, 1);
  request.max_tokens.reset();
  EXPECT_EQ(driver.RunOne(request).choices[0].size(), 1u);
  request = Fixed(3, 128, 1);
  request.max_tokens.reset();
  EXPECT_EQ(driver.Add(request).code(), absl::StatusCode::kOutOfRange);
}

TEST(SchedulerTest, Priority_GoesFirst_AndIsPreemptedLast) {
  sim::TimedExecutor executor = Executor(20);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 512, .max_running = 8}});
  for (uint64_t id = 1; id <= 4; ++id) {
    EngineRequest request = Fixed(id, 60, 150);
    request.priority = id == 4 ? 1 : 0;
    ASSERT_TRUE(driver.Add(request).ok());
  }
  driver.Run();
  const std::vector<int64_t>& at = driver.answers[4].token_steps;
  EXPECT_EQ(at.back() - at.front(), 149);  // a token each step: never taken off
  EXPECT_EQ(at.front(), 1);
}

TEST(SchedulerTest, MaxRunning_CountsChoicesBeforeTheyAreForked) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 64, .max_running = 6}});
  for (uint64_t id = 1; id <= 5; ++id) {
    EngineRequest request = Fixed(id, 50, 10);
    request.n = 4;
    ASSERT_TRUE(driver.Add(request).ok());
  }
  while (driver.engine.HasWork()) {
    driver.Step();
    ASSERT_LE(driver.engine.Load().running, 6);
  }
  EXPECT_EQ(driver.answers[5].usage->completion_tokens, 40);
}

TEST(SchedulerTest, Load_CountsPendingPrefill) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 100, .max_running = 2}});
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 150, 5)).ok());
  EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 450);
  EXPECT_EQ(driver.engine.Load().waiting, 3);
  driver.Step();
  EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 350);
  driver.Step();
  EXPECT_EQ(driver.engine.Load().running, 2);
  EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 250);
  driver.Run();
  EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 0);
}

}  // namespace
}  // namespace kvring::replica
