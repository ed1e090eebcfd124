// Soak: 2,000 mixed requests on a pool that is far too small. Afterwards all blocks are free and every answer
// equals that of the same request run alone without a cache.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 32;
constexpr uint64_t kRequests = 2000;

ExecutorLimits Limits(int32_t num_blocks) {
  return {.vocab_size = kVocabulary, .context_length = 80, .block_size = 4, .num_blocks = num_blocks};
}

// Prompts that share stems of several lengths, like turns of conversations.
std::vector<TokenId> MixedPrompt(Random& random) {
  std::vector<TokenId> prompt =
      RandomPrompt(random.Below(6), static_cast<int32_t>(random.Below(24)), kVocabulary);
  const std::vector<TokenId> tail =
      RandomPrompt(random.Next(), 1 + static_cast<int32_t>(random.Below(12)), kVocabulary);
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  return prompt;
}

EngineRequest MixedRequest(uint64_t id, Random& random) {
  EngineRequest request{
      .id = {id}, .prompt = MixedPrompt(random), .n = 1 + static_cast<int32_t>(random.Below(4))};
  request.root = MakeCacheRoot({.model = "m", .salt = random.Below(3) == 0 ? "x" : ""});
  request.max_tokens = static_cast<int32_t>(random.Below(30));
  if (random.Below(4) != 0) request.n = 1;
  if (random.Below(2) == 0) request.eos_tokens = {3, 4};
  request.priority = static_cast<int32_t>(random.Below(10)) == 0 ? 1 : 0;
  request.prompt_logprobs = random.Below(10) == 0;
  SamplingParams& p = request.sampling;
  p.seed = random.Next();
  p.temperature = random.Below(3) == 0 ? 0.0f : 0.9f;
  p.top_p = random.Below(3) == 0 ? 0.8f : 1.0f;
  p.frequency_penalty = random.Below(4) == 0 ? 0.7f : 0.0f;
  p.min_tokens = static_cast<int32_t>(random.Below(8));
  if (request.prompt_logprobs || random.Below(5) == 0) p.logprobs = 2;
  return request;
}

void ExpectEqual(const Answer& got, const Answer& alone, uint64_t id) {
  EXPECT_EQ(got.choices, alone.choices) << id;
  EXPECT_EQ(got.reasons, alone.reasons) << id;
  EXPECT_EQ(got.usage->completion_tokens, alone.usage->completion_tokens) << id;
  ASSERT_EQ(got.prompt.size(), alone.prompt.size()) << id;
  for (size_t i = 1; i < got.prompt.size(); ++i) {
    EXPECT_EQ(got.prompt[i].logprobs->logprob, alone.prompt[i].logprobs->logprob) << id;
  }
  for (size_t c = 0; c < got.logprobs.size(); ++c) {
    ASSERT_EQ(got.logprobs[c].size(), alone.logprobs[c].size()) << id;
    for (size_t i = 0; i < got.logprobs[c].size(); ++i) {
      EXPECT_EQ(got.logprobs[c][i].logprob, alone.logprobs[c][i].logprob) << id;
    }
  }
}

void Soak(int32_t num_blocks, uint64_t seed) {
  Random random(seed);
  ToyExecutor executor(Limits(num_blocks));
  EngineDriver driver(executor, {.scheduler = {.max_batch_tokens = 24, .max_running = 10}});
  std::map<uint64_t, EngineRequest> requests;
  std::set<uint64_t> cancelled;
  for (uint64_t id = 1; id <= kRequests || driver.engine.HasWork();) {
    while (id <= kRequests && driver.engine.Load().waiting < 12 && random.Below(3) != 0) {
      const EngineRequest request = MixedRequest(id, random);
      if (driver.Add(request).ok()) requests.emplace(id, request);
      if (random.Below(6) == 0) driver.finish_at[id] = 1 + random.Below(8);
      ++id;
    }
    driver.Step();
    const uint64_t victim = id - random.Below(std::min<uint64_t>(id, 30));
    if (random.Below(20) == 0 && driver.engine.Cancel({victim}).has_value()) cancelled.insert(victim);
    if (driver.steps % 64 == 0) {
      ASSERT_EQ(driver.engine.CheckIntegrity(), "");
    }
    if (random.Below(500) == 0) driver.engine.ClearCache();
  }
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
  EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 0);
  EXPECT_EQ(driver.engine.Load().waiting, 0);
  EXPECT_EQ(driver.engine.CheckIntegrity(), "");
  EXPECT_GT(driver.preemptions, 100);
  EXPECT_GT(cancelled.size(), 20u);
  EXPECT_GT(driver.engine.cache_stats().hit_tokens, 1000u);
  EXPECT_GT(driver.engine.cache_stats().copies, 100u);
  EXPECT_EQ(driver.engine.cache_stats().double_frees, 0u);

  ToyExecutor roomy(Limits(512));
  EngineDriver alone(roomy,
                     {.scheduler = {.max_batch_tokens = 256, .max_running = 16}, .prefix_caching = false});
  alone.finish_at = driver.finish_at;
  for (const auto& [id, request] : requests) {
    if (cancelled.contains(id)) continue;
    ExpectEqual(driver.answers[id], alone.RunOne(request), id);
  }
}

TEST(EngineSoakTest, TinyPool_EveryAnswerEqualsTheRunAlone) { Soak(/*num_blocks=*/22, /*seed=*/1); }
TEST(EngineSoakTest, SmallPool_EveryAnswerEqualsTheRunAlone) { Soak(/*num_blocks=*/40, /*seed=*/2); }

}  // namespace
}  // namespace kvring::replica
