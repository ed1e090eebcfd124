// The façade: order and content of events, choices, seeds, stops, errors, preemption.
#include "replica/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 64;

ExecutorLimits Limits(int32_t num_blocks, int32_t block_size = 16, int32_t context = 4096) {
  return {.vocab_size = kVocabulary,
          .context_length = context,
          .block_size = block_size,
          .num_blocks = num_blocks};
}

EngineOptions Options(int32_t batch_tokens = 128, int32_t max_running = 16) {
  return {.scheduler = {.max_batch_tokens = batch_tokens, .max_running = max_running}};
}

/// The request alone, on a big pool, without prefix cache.
Answer Alone(const EngineRequest& request, float bias = 0, TokenId biased = 0) {
  ToyExecutor executor(Limits(1024));
  executor.bias = bias;
  executor.biased_token = biased;
  EngineOptions options = Options();
  options.prefix_caching = false;
  EngineDriver driver(executor, options);
  return driver.RunOne(request);
}

EngineRequest Sampled(uint64_t id, std::vector<TokenId> prompt, int32_t max_tokens, uint64_t seed,
                      int32_t n = 1) {
  EngineRequest request{.id = {id}, .prompt = std::move(prompt), .n = n, .max_tokens = max_tokens};
  request.sampling.seed = seed;
  return request;
}

TEST(EngineTest, OneRequest_AllEventsAndExactUsage) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options());
  const Answer answer = driver.RunOne(Greedy(1, RandomPrompt(1, 33, kVocabulary), 8));
  EXPECT_EQ(answer.admitted->prompt_tokens, 33);
  EXPECT_EQ(answer.choices[0].size(), 8u);
  EXPECT_EQ(answer.reasons[0], FinishReason::kLength);
  EXPECT_EQ(answer.usage->completion_tokens, 8);
  EXPECT_EQ(executor.computed_tokens, 33 + 7);  // the last token is never computed
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
  EXPECT_EQ(driver.engine.Load().kv_cached_tokens, 32);
  EXPECT_FALSE(driver.engine.HasWork());
}

TEST(EngineTest, ChunkedPrefill_SameTokensAsInOneChunk) {
  const EngineRequest request = Greedy(1, RandomPrompt(2, 100, kVocabulary), 10);
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options(/*batch_tokens=*/17));
  EXPECT_EQ(driver.RunOne(request).choices, Alone(request).choices);
  EXPECT_EQ(driver.steps, 6 + 9);  // 100 tokens in chunks of 17, then a token a step
}

TEST(EngineTest, FourChoices_ChoiceZeroEqualsTheSingleRun_SMP07) {
  const std::vector<TokenId> prompt = RandomPrompt(3, 21, kVocabulary);
  const Answer four = Alone(Sampled(1, prompt, 12, 9, 4));
  EXPECT_EQ(four.choices, Alone(Sampled(2, prompt, 12, 9, 4)).choices);
  EXPECT_EQ(four.choices[0], Alone(Sampled(3, prompt, 12, 9, 1)).choices[0]);
  for (int i = 1; i < 4; ++i) EXPECT_NE(four.choices[i], four.choices[0]);
}

TEST(EngineTest, FourChoices_PromptComputedOnce_UsageCountedOnce_USG05) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options());
  const std::vector<TokenId> prompt = RandomPrompt(4, 33, kVocabulary);
  const Answer cold = driver.RunOne(Sampled(1, prompt, 6, 1, 4));
  EXPECT_EQ(executor.computed_tokens, 33 + 4 * 5);
  EXPECT_EQ(cold.usage->prompt_tokens, 33);
  EXPECT_EQ(cold.usage->cached_tokens, 0);
  EXPECT_EQ(cold.usage->completion_tokens, 24);
  EXPECT_EQ(driver.engine.cache_stats().copies, 3u);  // the last of the four writes in place
  const Answer warm = driver.RunOne(Sampled(2, prompt, 6, 1, 4));
  EXPECT_EQ(warm.usage->cached_tokens, 32);
  EXPECT_EQ(warm.choices, cold.choices);
}

TEST(EngineTest, OneChoiceEndsEarly_OthersGoOn_SMP11) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options());
  ASSERT_TRUE(driver.Add(Sampled(1, RandomPrompt(5, 10, kVocabulary), 10, 3, 3)).ok());
  driver.Step();
  driver.Step();
  EXPECT_TRUE(driver.engine.Finish({1}, 1));
  EXPECT_FALSE(driver.engine.Finish({1}, 1));
  driver.Run();
  const Answer& answer = driver.answers[1];
  EXPECT_EQ(answer.choices[0].size(), 10u);
  EXPECT_EQ(answer.choices[1].size(), 2u);
  EXPECT_EQ(answer.choices[2].size(), 10u);
  EXPECT_EQ(answer.reasons[1], FinishReason::kStop);
  EXPECT_EQ(answer.reasons[2], FinishReason::kLength);
  EXPECT_EQ(answer.usage->completion_tokens, 22);
}

TEST(EngineTest, EndOfSequence_StopsUnlessIgnored) {
  EngineRequest request = Greedy(1, RandomPrompt(6, 10, kVocabulary), 20);
  request.eos_tokens = {5, 7};
  const Answer stopped = Alone(request, /*bias=*/100, /*biased=*/7);
  EXPECT_EQ(stopped.choices[0], std::vector<TokenId>{7});
  EXPECT_EQ(stopped.reasons[0], FinishReason::kStop);
  request.sampling.min_tokens = 4;
  const Answer later = Alone(request, 100, 7);
  EXPECT_EQ(later.choices[0].size(), 5u);
  EXPECT_EQ(later.choices[0].back(), 7);
  request.ignore_eos = true;
  EXPECT_EQ(Alone(request, 100, 7).choices[0], std::vector<TokenId>(20, 7));
}

TEST(EngineTest, MaxTokensZero_PromptOnly_SMP04) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options(20));
  EngineRequest request = Greedy(1, RandomPrompt(7, 30, kVocabulary), 0);
  request.prompt_logprobs = true;
  request.sampling.logprobs = 1;
  const Answer answer = driver.RunOne(request);
  EXPECT_TRUE(answer.choices[0].empty());
  EXPECT_EQ(answer.reasons[0], FinishReason::kLength);
  EXPECT_EQ(answer.usage->completion_tokens, 0);
  ASSERT_EQ(answer.prompt.size(), 30u);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(answer.prompt[i].token, request.prompt[i]);
    EXPECT_EQ(answer.prompt[i].logprobs.has_value(), i > 0);
  }
}

// What a prompt token is said to have is what the same token gets when it is generated.
TEST(EngineTest, PromptLogprobs_EqualThoseOfGeneration_AndTakeNoCache) {
  EngineRequest first = Greedy(1, RandomPrompt(8, 20, kVocabulary), 13);
  first.sampling.logprobs = 2;
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options(16, 4));
  const Answer generated = driver.RunOne(first);
  EngineRequest echo = first;
  echo.id = {2};
  echo.prompt.insert(echo.prompt.end(), generated.choices[0].begin(), generated.choices[0].end());
  echo.prompt_logprobs = true;
  const Answer echoed = driver.RunOne(echo);
  EXPECT_EQ(echoed.usage->cached_tokens, 0);
  ASSERT_EQ(echoed.prompt.size(), 33u);
  for (size_t i = 0; i < 13; ++i) {
    EXPECT_EQ(echoed.prompt[20 + i].logprobs->logprob, generated.logprobs[0][i].logprob) << i;
    EXPECT_EQ(echoed.prompt[20 + i].logprobs->top[1].token, generated.logprobs[0][i].top[1].token) << i;
  }
}

TEST(EngineTest, Cancel_FreesBlocksAndSilences) {
  ToyExecutor executor(Limits(64));
  EngineDriver driver(executor, Options());
  ASSERT_TRUE(driver.Add(Sampled(1, RandomPrompt(9, 40, kVocabulary), 50, 1, 3)).ok());
  ASSERT_TRUE(driver.Add(Greedy(2, RandomPrompt(10, 40, kVocabulary), 5)).ok());
  driver.Step();
  driver.engine.Step(driver.now);
  const std::optional<EngineUsage> usage = driver.engine.Cancel({1});
  EXPECT_EQ(usage->completion_tokens, 6);
  EXPECT_EQ(driver.engine.Cancel({1}), std::nullopt);
  for (const EngineEvent& event : driver.engine.TakeEvents()) EXPECT_EQ(event.request.value, 2u);
  while (driver.engine.HasWork()) driver.engine.Step(driver.now);
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
  EXPECT_EQ(driver.engine.CheckIntegrity(), "");
}

TEST(EngineTest, ExecutorFails_BatchEndsWithErrors_EngineGoesOn) {
  ToyExecutor executor(Limits(64));
  executor.fail_at = 2;
  EngineDriver driver(executor, Options());
  ASSERT_TRUE(driver.Add(Sampled(1, RandomPrompt(11, 40, kVocabulary), 50, 1, 2)).ok());
  driver.Step();
  driver.Step();
  EXPECT_EQ(driver.answers[1].failure.message(), "device lost");
  EXPECT_FALSE(driver.engine.HasWork());
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
  const EngineRequest next = Greedy(2, RandomPrompt(11, 40, kVocabulary), 5);
  EXPECT_EQ(driver.RunOne(next).choices, Alone(next).choices);
}

TEST(EngineTest, Add_SameIdOrFullQueue_IsRefused) {
  ToyExecutor executor(Limits(64));
  EngineOptions options = Options();
  options.scheduler.max_waiting = 2;
  EngineDriver driver(executor, options);
  ASSERT_TRUE(driver.Add(Greedy(1, {1, 2}, 2)).ok());
  EXPECT_EQ(driver.engine.Add(Greedy(1, {1, 2}, 2), {}).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(driver.Add(Greedy(2, {1, 2}, 2)).ok());
  EXPECT_EQ(driver.engine.Add(Greedy(3, {1, 2}, 2), {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(EngineTest, NeverFits_RefusedAtOnce_TwoThatFitOnlyInTurn_BothRun_KVB14) {
  ToyExecutor executor(Limits(10));
  EngineDriver driver(executor, Options());
  EXPECT_EQ(driver.engine.max_tokens_per_sequence(), 160);
  EXPECT_EQ(driver.Add(Greedy(1, RandomPrompt(1, 161, kVocabulary), 1)).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(driver.Add(Greedy(2, RandomPrompt(1, 150, kVocabulary), 50)).code(),
            absl::StatusCode::kOutOfRange);
  const EngineRequest a = Greedy(3, RandomPrompt(3, 100, kVocabulary), 20);
  const EngineRequest b = Greedy(4, RandomPrompt(4, 100, kVocabulary), 20);
  ASSERT_TRUE(driver.Add(a).ok());
  ASSERT_TRUE(driver.Add(b).ok());
  driver.Run();
  EXPECT_EQ(driver.answers[3].choices, Alone(a).choices);
  EXPECT_EQ(driver.answers[4].choices, Alone(b).choices);
  EXPECT_EQ(driver.preemptions, 0);
}

// Three sequences that grow past a pool of 12 blocks: some are preempted, and nobody can tell.
TEST(EngineTest, Preemption_ChangesNothing_SMP08) {
  ToyExecutor executor(Limits(12, 4));
  EngineDriver driver(executor, Options(32, 8));
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 3; ++id) {
    EngineRequest request = Sampled(id, RandomPrompt(id, 9, kVocabulary), 26, 7);
    request.sampling.frequency_penalty = 1;
    request.sampling.min_tokens = 20;
    request.eos_tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    requests.push_back(request);
    ASSERT_TRUE(driver.Add(request).ok());
  }
  driver.Run();
  EXPECT_GT(driver.preemptions, 0);
  for (const EngineRequest& request : requests) {
    const Answer& answer = driver.answers[request.id.value];
    const Answer alone = Alone(request);
    EXPECT_EQ(answer.choices, alone.choices);
    EXPECT_GE(answer.choices[0].size(), 20u);
    EXPECT_EQ(answer.usage->prompt_tokens, 9);
    EXPECT_EQ(answer.usage->completion_tokens, alone.usage->completion_tokens);
  }
}

// The earlier request grows and takes the room of one whose prompt rows are partly out; these are not given
// twice.
TEST(EngineTest, PreemptedInTheMiddleOfPromptRows_EachRowOnce) {
  ToyExecutor executor(Limits(12, 4));
  EngineDriver driver(executor, Options(/*batch_tokens=*/3, /*max_running=*/2));
  ASSERT_TRUE(driver.Add(Greedy(1, RandomPrompt(1, 17, kVocabulary), 28)).ok());
  for (int i = 0; i < 6; ++i) driver.Step();
  EngineRequest echo = Greedy(2, RandomPrompt(2, 24, kVocabulary), 3);
  echo.prompt_logprobs = true;
  echo.sampling.logprobs = 0;
  ASSERT_TRUE(driver.Add(echo).ok());
  while (driver.preemptions == 0) driver.Step();
  const size_t rows = driver.answers[2].prompt.size();
  EXPECT_GT(rows, 4u);
  EXPECT_LT(rows, 24u);
  driver.Run();
  const Answer alone = Alone(echo);
  const Answer& answer = driver.answers[2];
  EXPECT_EQ(answer.choices, alone.choices);
  ASSERT_EQ(answer.prompt.size(), 24u);
  for (size_t i = 1; i < 24; ++i) {
    EXPECT_EQ(answer.prompt[i].logprobs->logprob, alone.prompt[i].logprobs->logprob) << i;
  }
}

TEST(EngineTest, NoFiniteLogit_RequestFailsAlone) {
  ToyExecutor executor(Limits(64));
  executor.bias = NAN;
  EngineDriver driver(executor, Options());
  EngineRequest request = Greedy(1, {1, 2, 3}, 4);
  for (TokenId t = 1; t < kVocabulary; ++t) request.sampling.logit_bias.emplace_back(t, -INFINITY);
  const Answer answer = driver.RunOne(request);
  EXPECT_EQ(answer.failure.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
}

}  // namespace
}  // namespace kvring::replica
