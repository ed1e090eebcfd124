// Who is served first: tenants, priorities, shared prefixes that are just being computed, deadlocks, pins.
#include <gtest/gtest.h>

#include "sim/timed_executor.h"
#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 50'000;

sim::TimedExecutor Executor(int32_t num_blocks) {
  return sim::TimedExecutor(
      {.vocab_size = kVocabulary, .context_length = 1 << 20, .block_size = 16, .num_blocks = num_blocks},
      {.base_ns = 1e6});
}

EngineRequest Fixed(uint64_t id, int32_t prompt, int32_t output, uint64_t tenant = 0) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt, kVocabulary), output);
  request.ignore_eos = true;
  request.tenant = {tenant};
  return request;
}

int CountFinished(const EngineDriver& driver, uint64_t first, uint64_t last) {
  int finished = 0;
  for (const auto& [id, answer] : driver.answers)
    finished += id >= first && id <= last && answer.usage.has_value();
  return finished;
}

// Tenant 1 has 200 requests waiting when tenant 2 comes with 20: from then on they take turns.
TEST(FairShareTest, FloodOfOneTenant_DoesNotHoldUpAnother) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 128, .max_running = 4}});
  for (uint64_t id = 1; id <= 200; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 60, 20, 1)).ok());
  for (int i = 0; i < 100; ++i) driver.Step();
  const int before = CountFinished(driver, 1, 200);
  for (uint64_t id = 1001; id <= 1020; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 60, 20, 2)).ok());
  while (CountFinished(driver, 1001, 1020) < 20) driver.Step();
  const int of_the_flood = CountFinished(driver, 1, 200) - before;
  EXPECT_GE(of_the_flood, 16);
  EXPECT_LE(of_the_flood, 26);
  driver.Run();
}

// Requests of different size: tokens are shared, not requests.
TEST(FairShareTest, ServedTokens_StayEqualWhileBothWait) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 128, .max_running = 4}});
  for (uint64_t id = 1; id <= 300; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 200, 50, 1)).ok());
  for (uint64_t id = 1001; id <= 2000; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 20, 10, 2)).ok());
  for (int i = 0; i < 2000; ++i) driver.Step();
  const int64_t large = CountFinished(driver, 1, 300) * (200 + 2 * 49);
  const int64_t small = CountFinished(driver, 1001, 2000) * (20 + 2 * 9);
  EXPECT_GT(large, 10'000);
  EXPECT_NEAR(static_cast<double>(small) / static_cast<double>(large), 1, 0.1);
}

TEST(FairShareTest, IdleTime_SavesNothingUp) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 128, .max_running = 2}});
  ASSERT_TRUE(driver.Add(Fixed(5000, 20, 2, 2)).ok());
  for (uint64_t id = 1; id <= 400; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 60, 20, 1)).ok());
  while (CountFinished(driver, 1, 400) < 200) driver.Step();
  for (uint64_t id = 1001; id <= 1100; ++id) ASSERT_TRUE(driver.Add(Fixed(id, 60, 20, 2)).ok());
  const int before = CountFinished(driver, 1, 400);
  while (CountFinished(driver, 1001, 1100) < 40) driver.Step();
  EXPECT_GE(CountFinished(driver, 1, 400) - before, 36);  // not shut out until tenant 2 has caught up
}

TEST(FairShareTest, Priority_GoesBeforeFairness) {
  sim::TimedExecutor executor = Executor(1000);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 128, .max_running = 1}});
  ASSERT_TRUE(driver.Add(Fixed(1, 60, 20, 1)).ok());
  driver.Step();
  ASSERT_TRUE(driver.Add(Fixed(2, 60, 20, 2)).ok());
  EngineRequest urgent = Fixed(3, 60, 20, 1);
  urgent.priority = 1;
  ASSERT_TRUE(driver.Add(urgent).ok());
  while (!driver.answers[2].admitted.has_value()) driver.Step();
  EXPECT_TRUE(driver.answers[3].usage.has_value());
}

// Two prompts of equal beginning come in one step: its blocks are computed once.
TEST(SharedPrefillTest, SeveralAtOnce_ComputeTheSharedBlocksOnce) {
  for (const int32_t batch_tokens : {64, 1024}) {  // in chunks, or with budget to spare
    ToyExecutor executor({.vocab_size = 64, .context_length = 4096, .block_size = 16, .num_blocks = 64});
    EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = batch_tokens, .max_running = 8}});
    const std::vector<TokenId> shared = RandomPrompt(1, 200, 64);
    for (uint64_t id = 1; id <= 4; ++id) {
      std::vector<TokenId> prompt = shared;
      prompt.resize(210, static_cast<TokenId>(id));
      ASSERT_TRUE(driver.Add(Greedy(id, prompt, 5)).ok());
    }
    driver.Run();
    EXPECT_EQ(executor.computed_tokens, 210 + 3 * (210 - 192) + 4 * 4);
    EXPECT_EQ(driver.answers[1].usage->cached_tokens, 0);
    for (uint64_t id = 2; id <= 4; ++id) EXPECT_EQ(driver.answers[id].usage->cached_tokens, 192);
    EXPECT_EQ(driver.engine.cache_stats().merged_blocks, 0u);
    EXPECT_EQ(driver.engine.scheduler_stats().shared_waits > 0, batch_tokens == 1024);
  }
}

// The one that computes is cancelled: the other takes over.
TEST(SharedPrefillTest, FirstHolderCancelled_TheOtherComputes) {
  ToyExecutor executor({.vocab_size = 64, .context_length = 4096, .block_size = 16, .num_blocks = 64});
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 64, .max_running = 8}});
  const std::vector<TokenId> prompt = RandomPrompt(1, 200, 64);
  ASSERT_TRUE(driver.Add(Greedy(1, prompt, 5)).ok());
  ASSERT_TRUE(driver.Add(Greedy(2, prompt, 5)).ok());
  driver.Step();
  EXPECT_FALSE(driver.answers[2].admitted.has_value());
  ASSERT_TRUE(driver.engine.Cancel({1}).has_value());
  driver.Run();
  EXPECT_EQ(driver.answers[2].usage->cached_tokens, 64);
  EXPECT_EQ(executor.computed_tokens, 200 + 4);
}

// While one computes what another waits for, a third that shares nothing goes ahead.
TEST(SharedPrefillTest, OthersPassMeanwhile_UnlessTheOrderIsStrict) {
  for (const int32_t bypasses : {16, 0}) {
    sim::TimedExecutor executor = Executor(100);
    EngineDriver driver(executor,
                        {.scheduler = {.max_batch_tokens = 64, .max_running = 8, .max_bypasses = bypasses}});
    ASSERT_TRUE(driver.Add(Fixed(1, 100, 5)).ok());
    EngineRequest same = Fixed(1, 100, 5);
    same.id = {2};
    ASSERT_TRUE(driver.Add(same).ok());
    ASSERT_TRUE(driver.Add(Fixed(3, 10, 5)).ok());
    driver.Step();
    driver.Step();
    EXPECT_EQ(driver.answers[3].admitted.has_value(), bypasses > 0);
    driver.Run();
    EXPECT_EQ(driver.answers[2].usage->cached_tokens, 96);
  }
}

// 511 blocks, held as 256 and 255 by two that need one more each, in the same step.
TEST(DeadlockTest, TwoHoldTheWholePool_OneGivesWay_BothFinish_SCH_02) {
  sim::TimedExecutor executor = Executor(511);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 9000, .max_running = 4}});
  ASSERT_TRUE(driver.Add(Fixed(1, 251 * 16, 120)).ok());
  ASSERT_TRUE(driver.Add(Fixed(2, 250 * 16, 120)).ok());
  int64_t longest_gap = 0;
  int64_t last_progress = 0;
  while (driver.engine.HasWork()) {
    const StepReport report = driver.Step();
    if (report.prefill_tokens + report.decode_tokens > 0) {
      longest_gap = std::max(longest_gap, driver.steps - last_progress);
      last_progress = driver.steps;
    }
    ASSERT_LT(driver.steps, 1000);
  }
  EXPECT_LE(longest_gap, 2);
  EXPECT_EQ(driver.engine.scheduler_stats().deadlocks_broken, 1u);
  EXPECT_EQ(driver.preemptions, 1);
  EXPECT_EQ(driver.answers[1].choices[0].size(), 120u);
  EXPECT_EQ(driver.answers[2].choices[0].size(), 120u);
  EXPECT_LT(driver.answers[1].token_steps.back(), driver.answers[2].token_steps.back());
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
}

// Pins are given up for a request that would otherwise never run, or never end.
TEST(PinTest, GivenUpWhenNothingElseIsLeft) {
  sim::TimedExecutor executor = Executor(20);
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 512, .max_running = 4}});
  EngineRequest pinned = Fixed(1, 160, 1);
  pinned.retention = {Retention::kPinned, std::chrono::hours(1)};
  driver.RunOne(pinned);
  EngineRequest again = pinned;
  again.id = {2};
  EXPECT_EQ(driver.RunOne(again).usage->cached_tokens, 144);
  EXPECT_EQ(driver.engine.scheduler_stats().pins_given_up, 0u);
  EXPECT_EQ(driver.RunOne(Fixed(3, 150, 170)).choices[0].size(),
            170u);  // begins beside them, grows to 20 blocks
  EXPECT_EQ(driver.engine.scheduler_stats().pins_given_up, 10u);
  again.id = {4};
  driver.RunOne(again);
  EXPECT_EQ(driver.RunOne(Fixed(5, 250, 5)).choices[0].size(), 5u);  // does not even fit beside them
  EXPECT_EQ(driver.engine.scheduler_stats().pins_given_up, 20u);
}

// A conversation that was idle while others filled the cache is found when it was worth more.
TEST(RetentionTest, HighBlocksOutliveAFloodOfOthers) {
  for (const Retention retention : {Retention::kNormal, Retention::kHigh}) {
    sim::TimedExecutor executor = Executor(100);
    EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 512, .max_running = 4}});
    EngineRequest chat = Fixed(1, 160, 1);
    chat.retention = {retention,
                      retention == Retention::kHigh ? Duration(std::chrono::minutes(5)) : Duration{}};
    driver.RunOne(chat);
    for (uint64_t id = 10; id < 40; ++id) driver.RunOne(Fixed(id, 160, 1));
    chat.id = {2};
    EXPECT_EQ(driver.RunOne(chat).usage->cached_tokens, retention == Retention::kHigh ? 144 : 0);
    driver.now = driver.now + std::chrono::minutes(6);  // its time is over: one among the others
    for (uint64_t id = 50; id < 80; ++id) driver.RunOne(Fixed(id, 160, 1));
    chat.id = {3};
    EXPECT_EQ(driver.RunOne(chat).usage->cached_tokens, 0);
  }
}

}  // namespace
}  // namespace kvring::replica
