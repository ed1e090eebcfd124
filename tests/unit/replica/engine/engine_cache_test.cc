// The engine on its prefix cache: what usage says equals what was skipped, and text never depends on the
// cache.
#include <gtest/gtest.h>

#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 64;

ExecutorLimits Limits(int32_t num_blocks, int32_t block_size = 16) {
  return {.vocab_size = kVocabulary,
          .context_length = 100'000,
          .block_size = block_size,
          .num_blocks = num_blocks};
}

EngineOptions Options(int32_t batch_tokens = 128, int32_t max_running = 16) {
  return {.scheduler = {.max_batch_tokens = batch_tokens, .max_running = max_running}};
}

TEST(EngineCacheTest, SamePromptTwice_HitsFloorOfAllButOne_SameText_PFX01) {
  for (const int32_t length : {15, 16, 17, 32, 33, 48, 49, 64}) {
    ToyExecutor executor(Limits(64));
    EngineDriver driver(executor, Options());
    const std::vector<TokenId> prompt = RandomPrompt(length, length, kVocabulary);
    const Answer cold = driver.RunOne(Greedy(1, prompt, 8));
    const int64_t before = executor.computed_tokens;
    const Answer warm = driver.RunOne(Greedy(2, prompt, 8));
    const int32_t expected = (length - 1) / 16 * 16;
    EXPECT_EQ(warm.usage->cached_tokens, expected) << length;
    // Of a last block that is cached whole all tokens but the last are copied.
    EXPECT_EQ(executor.computed_tokens - before, (length % 16 == 0 ? 1 : length - expected) + 7) << length;
    EXPECT_EQ(warm.choices, cold.choices) << length;
    std::vector<TokenId> longer = prompt;
    longer.resize(length + 30, 3);
    EXPECT_EQ(driver.RunOne(Greedy(3, longer, 1)).usage->cached_tokens, length / 16 * 16) << length;
  }
}

TEST(EngineCacheTest, TailAfterTheLastWholeBlock_IsComputed_PFX02) {
  ToyExecutor executor(Limits(8, 2048));
  EngineDriver driver(executor, Options(2048));
  const std::vector<TokenId> prompt = RandomPrompt(1, 7987, kVocabulary);
  const Answer cold = driver.RunOne(Greedy(1, prompt, 1));
  const int64_t before = executor.computed_tokens;
  const Answer warm = driver.RunOne(Greedy(2, prompt, 1));
  EXPECT_EQ(executor.computed_tokens - before, 1843);
  EXPECT_EQ(warm.usage->cached_tokens, 6144);
  EXPECT_EQ(warm.choices, cold.choices);
}

TEST(EngineCacheTest, GrowingChat_GeneratedTokensAreReused_USG08) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options());
  const Answer first = driver.RunOne(Greedy(1, RandomPrompt(1, 64, kVocabulary), 40));
  std::vector<TokenId> history = RandomPrompt(1, 64, kVocabulary);
  history.insert(history.end(), first.choices[0].begin(), first.choices[0].end());
  history.resize(history.size() + 10, 5);
  EXPECT_EQ(driver.RunOne(Greedy(2, history, 4)).usage->cached_tokens, 96);  // of 103 computed ones
  EXPECT_EQ(driver.RunOne(Greedy(3, RandomPrompt(1, 64, kVocabulary), 4)).usage->cached_tokens, 48);
}

BlockHash Constant(BlockHash, std::span<const TokenId>) { return {42}; }
BlockHash EightBits(BlockHash parent, std::span<const TokenId> block) {
  return {ChainNext(parent, block).value & 0xff};
}

TEST(EngineCacheTest, CollidingHashes_OutputsEqualColdRuns_PFX08) {
  for (const auto chain : {Constant, EightBits}) {
    ToyExecutor cold_executor(Limits(64, 4));
    ToyExecutor executor(Limits(64, 4));
    EngineOptions options = Options();
    options.prefix_caching = false;
    EngineDriver cold(cold_executor, options);
    options.prefix_caching = true;
    options.chain = chain;
    EngineDriver driver(executor, options);
    for (uint64_t id = 1; id <= 200; ++id) {
      const EngineRequest request = Greedy(id, RandomPrompt(id % 150, 21, 4), 4);
      EXPECT_EQ(driver.RunOne(request).choices, cold.RunOne(request).choices) << id;
    }
    EXPECT_GT(driver.engine.cache_stats().collisions, 0u);
  }
}

TEST(EngineCacheTest, SaltsAndAdapters_PFX05_PFX06) {
  ToyExecutor executor(Limits(256));
  EngineDriver driver(executor, Options());
  const std::vector<TokenId> prompt = RandomPrompt(1, 100, kVocabulary);
  uint64_t id = 0;
  const auto cached = [&](std::string_view adapter, std::string_view salt) {
    EngineRequest request = Greedy(++id, prompt, 2);
    request.root = MakeCacheRoot({.model = "m", .adapter = adapter, .salt = salt});
    return driver.RunOne(request).usage->cached_tokens;
  };
  EXPECT_EQ(cached("", "A"), 0);
  EXPECT_EQ(cached("", "A"), 96);
  EXPECT_EQ(cached("", "B"), 0);
  EXPECT_EQ(cached("", ""), 0);
  EXPECT_EQ(cached("a#1", ""), 0);
  EXPECT_EQ(cached("a#1", ""), 96);
  EXPECT_EQ(cached("a#2", ""), 0);
  EXPECT_EQ(cached("", ""), 96);
}

// r1: prompt 40 and 9 generated; taken off the pool by an earlier, growing one, then admitted again.
TEST(EngineCacheTest, Preempted_BlocksStillCached_ComputesOneToken_KVB06) {
  for (const bool evicted : {false, true}) {
    ToyExecutor executor(Limits(8));
    BlockManager blocks({.num_blocks = 8, .block_size = 16});
    Scheduler scheduler({.max_batch_tokens = 64, .max_running = 4}, blocks);
    ActiveRequest request;
    Sequence r1;
    r1.request = &request;
    r1.prompt_tokens = 40;
    r1.prompt_rows_done = INT32_MAX;
    r1.tokens = RandomPrompt(1, 40, kVocabulary);
    scheduler.Enqueue(r1);
    const auto advance = [&](Sequence& sequence, int32_t tokens) {
      sequence.computed += tokens;
      blocks.Commit(sequence.table, sequence.tokens, sequence.computed);
    };
    ASSERT_EQ(scheduler.Plan({}).items.size(), 1u);
    advance(r1, 40);
    for (int i = 0; i < 8; ++i) {
      r1.tokens.push_back(i);
      ASSERT_EQ(scheduler.Plan({}).items[0].tokens, 1);
      advance(r1, 1);
    }
    r1.tokens.push_back(63);
    // An earlier one that takes five blocks and then, one at a time, all the rest.
    Sequence r0;
    r0.request = &request;
    r0.rank = {.priority = 1};
    r0.tokens = RandomPrompt(2, evicted ? 112 : 64, kVocabulary);
    r0.prompt_tokens = r0.length();
    r0.prompt_rows_done = INT32_MAX;
    BlockTable grabbed;
    ASSERT_TRUE(blocks.Admit(grabbed, {.tokens = RandomPrompt(3, 80, kVocabulary)}).has_value());
    const StepPlan& plan = scheduler.Plan({});
    ASSERT_EQ(plan.preemptions, 1);
    EXPECT_TRUE(r1.table.blocks.empty());
    EXPECT_EQ(r1.computed, 0);
    EXPECT_EQ(r1.length(), 49);
    blocks.Release(grabbed);
    if (evicted) blocks.Evict(8);
    const StepPlan& again = scheduler.Plan({});
    ASSERT_EQ(again.items.size(), 1u);
    EXPECT_TRUE(again.admitted.empty());
    EXPECT_EQ(again.items[0].tokens, evicted ? 49 : 1);
    EXPECT_EQ(r1.cached_tokens, evicted ? 0 : 48);
    scheduler.Remove(r1);
    EXPECT_EQ(blocks.used_blocks(), 0);
  }
}

TEST(EngineCacheTest, PreemptedRereads_AreNotHits_USG06) {
  ToyExecutor executor(Limits(30));
  EngineDriver driver(executor, Options(256, 16));
  for (uint64_t id = 1; id <= 1000; ++id) {
    ASSERT_TRUE(driver.Add(Greedy(id, RandomPrompt(id, 40, kVocabulary), 80)).ok());
  }
  driver.Run(1'000'000);
  const BlockManagerStats& stats = driver.engine.cache_stats();
  EXPECT_GE(driver.preemptions, 200);
  EXPECT_EQ(stats.query_tokens, 40'000u);
  EXPECT_LE(static_cast<double>(stats.hit_tokens), 0.002 * 40'000);
  EXPECT_GT(stats.readmitted_hit_tokens, 0u);
  for (const auto& [id, answer] : driver.answers) EXPECT_LE(answer.usage->cached_tokens, 0) << id;
}

// A waiting request does not hold a look-up: what it hits is found when it is admitted, and counted once.
TEST(EngineCacheTest, HitIsFoundAtAdmission_CountedOnce_PFX23_USG07) {
  ToyExecutor executor(Limits(12));
  EngineDriver driver(executor, Options());
  const std::vector<TokenId> shared = RandomPrompt(1, 49, kVocabulary);
  driver.RunOne(Greedy(1, shared, 1));  // 3 blocks stay
  const uint64_t queries = driver.engine.cache_stats().query_tokens;
  ASSERT_TRUE(driver.Add(Greedy(2, RandomPrompt(2, 140, kVocabulary), 20)).ok());  // 9 blocks, then a tenth
  ASSERT_TRUE(driver.Add(Greedy(3, shared, 4)).ok());
  const int64_t before = executor.computed_tokens;
  driver.Run();
  const int32_t cached = driver.answers[3].usage->cached_tokens;
  EXPECT_LT(cached, 48);  // the tenth block took a leaf away while request 3 waited
  EXPECT_EQ(executor.computed_tokens - before, (140 + 19) + (49 - cached) + 3);
  EXPECT_EQ(driver.engine.cache_stats().query_tokens - queries, 189u);
  EXPECT_EQ(driver.engine.cache_stats().hit_tokens, static_cast<uint64_t>(cached));
}

// 200 unrelated chats at once, some with a common system prompt, on a pool that keeps few of them: what is
// reused is the request's own prefix, token by token, and usage says how much of it was.
TEST(EngineCacheTest, UnrelatedChats_NeverSeeEachOther_ReportWhatWasReused_PFX_21) {
  ToyExecutor executor(Limits(60));
  ToyExecutor alone_executor(Limits(60));
  EngineDriver driver(executor, Options());
  EngineOptions uncached = Options();
  uncached.prefix_caching = false;
  EngineDriver alone(alone_executor, uncached);
  std::vector<EngineRequest> turns;
  for (uint64_t chat = 0; chat < 200; ++chat) {
    std::vector<TokenId> prompt = RandomPrompt(chat % 2, 40, kVocabulary);
    const std::vector<TokenId> marker = RandomPrompt(1000 + chat, 20, kVocabulary);
    prompt.insert(prompt.end(), marker.begin(), marker.end());
    turns.push_back(Greedy(chat, prompt, 6));
  }
  for (const uint64_t turn : {0, 1}) {
    const int64_t before = executor.computed_tokens;
    int64_t expected = 0;
    for (EngineRequest& request : turns) {
      request.id = {request.id.value % 1000 + 1000 * turn};
      ASSERT_TRUE(driver.Add(request).ok());
    }
    driver.Run();
    for (EngineRequest& request : turns) {
      const Answer& answer = driver.answers[request.id.value];
      EXPECT_EQ(answer.choices, alone.RunOne(request).choices) << request.id.value;
      expected += answer.usage->prompt_tokens - answer.usage->cached_tokens + 5;
      request.prompt.insert(request.prompt.end(), answer.choices[0].begin(), answer.choices[0].end());
    }
    EXPECT_EQ(driver.preemptions, 0);
    EXPECT_EQ(executor.computed_tokens - before, expected);
  }
  EXPECT_GT(driver.engine.cache_stats().hit_tokens, 0u);
}

TEST(EngineCacheTest, FirstHolderStillPrefilling_WrittenBlocksAreShared) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options(/*batch_tokens=*/64, /*max_running=*/4));
  const std::vector<TokenId> prompt = RandomPrompt(1, 200, kVocabulary);
  ASSERT_TRUE(driver.Add(Greedy(1, prompt, 4)).ok());
  driver.Step();
  driver.Step();
  ASSERT_TRUE(driver.Add(Greedy(2, prompt, 4)).ok());
  driver.Run();
  EXPECT_GE(driver.answers[2].usage->cached_tokens, 128);
  EXPECT_EQ(driver.answers[2].choices, driver.answers[1].choices);
}

}  // namespace
}  // namespace kvring::replica
