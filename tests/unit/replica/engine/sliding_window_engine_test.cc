// The engine on a model with a sliding window: bounded blocks, prompts longer than the pool, and answers that
// are those of a run alone with room for everything.
#include <gtest/gtest.h>

#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 64;

ExecutorLimits Limits(int32_t num_blocks, int32_t window, int32_t block_size = 16) {
  return {.vocab_size = kVocabulary,
          .context_length = 4096,
          .block_size = block_size,
          .num_blocks = num_blocks,
          .window = window};
}

EngineOptions Options(int32_t batch_tokens, int32_t max_running = 16) {
  return {.scheduler = {.max_batch_tokens = batch_tokens, .max_running = max_running}};
}

Answer Alone(const EngineRequest& request, int32_t window) {
  ToyExecutor executor(Limits(1024, window));
  EngineOptions options = Options(4096);
  options.prefix_caching = false;
  EngineDriver driver(executor, options);
  return driver.RunOne(request);
}

TEST(SlidingWindowEngineTest, LongRun_StopsGrowingAtTheWindow) {
  ToyExecutor executor(Limits(64, 64));
  EngineDriver driver(executor, Options(40));
  const EngineRequest request = Greedy(1, RandomPrompt(1, 200, kVocabulary), 300);
  ASSERT_TRUE(driver.Add(request).ok());
  int64_t prefilling = 0;
  int64_t decoding = 0;
  while (driver.engine.HasWork()) {
    driver.Step();
    int64_t& most = driver.answers[1].choices[0].empty() ? prefilling : decoding;
    most = std::max(most, driver.engine.Load().kv_used_tokens);
    ASSERT_EQ(driver.engine.CheckIntegrity(), "");
  }
  EXPECT_EQ(prefilling, 8 * 16);  // 63 behind and 40 of the chunk touch at most 8 blocks
  EXPECT_EQ(decoding, 5 * 16);    // after a step: 64 positions touch at most 5
  EXPECT_EQ(driver.answers[1].choices, Alone(request, 64).choices);
}

// The pool holds 96 tokens, the window 32: a prompt of 1,000 and its answer pass through.
TEST(SlidingWindowEngineTest, PromptLongerThanThePool_IsServed_ChunksFitThePool) {
  ToyExecutor executor(Limits(6, 32));
  EngineDriver driver(executor, Options(512));
  EXPECT_EQ(driver.engine.max_tokens_per_sequence(), 4096);
  const EngineRequest request = Greedy(1, RandomPrompt(1, 1000, kVocabulary), 50);
  EXPECT_EQ(driver.RunOne(request).choices, Alone(request, 32).choices);
  EXPECT_EQ(driver.preemptions, 0);
}

TEST(SlidingWindowEngineTest, PoolWithoutRoomForTheWindow_LimitsTheSequence) {
  ToyExecutor executor(Limits(4, 100));
  EngineDriver driver(executor, Options(512));
  EXPECT_EQ(driver.engine.max_tokens_per_sequence(), 64);
  const EngineRequest request = Greedy(1, RandomPrompt(1, 50, kVocabulary), 14);
  EXPECT_EQ(driver.RunOne(request).choices, Alone(request, 100).choices);
  EXPECT_EQ(driver.Add(Greedy(2, RandomPrompt(1, 50, kVocabulary), 15)).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(SlidingWindowEngineTest, NextTurn_IsFoundThoughItsBeginningIsGone) {
  ToyExecutor executor(Limits(12, 32));
  EngineDriver driver(executor, Options(64));
  std::vector<TokenId> history = RandomPrompt(1, 300, kVocabulary);
  const Answer first = driver.RunOne(Greedy(1, history, 40));
  history.insert(history.end(), first.choices[0].begin(), first.choices[0].end());
  history.resize(history.size() + 10, 5);
  const EngineRequest next = Greedy(2, history, 8);
  const int64_t before = executor.computed_tokens;
  const Answer second = driver.RunOne(next);
  EXPECT_EQ(second.usage->cached_tokens, 336);  // whole blocks of the 339 computed
  EXPECT_EQ(executor.computed_tokens - before, 350 - 336 + 7);
  EXPECT_EQ(second.choices, Alone(next, 32).choices);
}

// A prefill of higher priority needs room in a step in which all decodes have been planned already: one of
// them is taken out of the plan again.
TEST(SlidingWindowEngineTest, PrefillOfHigherPriority_TakesTheRoomOfADecodeThatWasPlanned) {
  ToyExecutor executor(Limits(31, 40, /*block_size=*/4));
  EngineDriver driver(executor, Options(23, 8));
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 3; ++id) {
    requests.push_back(Greedy(id, RandomPrompt(id, 4, kVocabulary), 80));
    ASSERT_TRUE(driver.Add(requests.back()).ok());
  }
  for (int i = 0; i < 8; ++i) driver.Step();
  requests.push_back(Greedy(4, RandomPrompt(4, 600, kVocabulary), 5));
  requests.back().priority = 1;
  ASSERT_TRUE(driver.Add(requests.back()).ok());
  driver.Run();
  EXPECT_GT(driver.preemptions, 0);
  for (const EngineRequest& request : requests)
    EXPECT_EQ(driver.answers[request.id.value].choices, Alone(request, 40).choices) << request.id.value;
}

// Conversations that share stems, chunks, preemption and forks on a pool that is far too small.
TEST(SlidingWindowEngineTest, TinyPool_EveryAnswerEqualsTheRunAlone) {
  for (const int32_t window : {1, 7, 24}) {
    ToyExecutor executor(Limits(16, window, /*block_size=*/4));
    EngineDriver driver(executor, Options(20, 8));
    Random random(window);
    std::vector<EngineRequest> requests;
    for (uint64_t id = 1; id <= 150; ++id) {
      EngineRequest request = Greedy(id, RandomPrompt(random.Below(4), 30, kVocabulary), {});
      for (uint64_t tail = 1 + random.Below(40); tail > 0; --tail)
        request.prompt.push_back(static_cast<TokenId>(random.Below(3)));
      request.max_tokens = static_cast<int32_t>(random.Below(30));
      request.n = 1 + static_cast<int32_t>(random.Below(3));
      request.sampling = {.temperature = 1, .seed = id};
      requests.push_back(request);
      ASSERT_TRUE(driver.Add(request).ok());
    }
    driver.Run();
    EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
    EXPECT_EQ(driver.engine.CheckIntegrity(), "");
    EXPECT_GT(driver.engine.cache_stats().hit_tokens, 100u) << window;
    for (const EngineRequest& request : requests) {
      EXPECT_EQ(driver.answers[request.id.value].choices, Alone(request, window).choices)
          << "window " << window << " request " << request.id.value;
    }
  }
}

}  // namespace
}  // namespace kvring::replica
