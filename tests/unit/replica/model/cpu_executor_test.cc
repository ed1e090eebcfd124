// The executor against the reference answers of the bundled model (transformers, fp32, weights dequantised to fp32).
#include "replica/model/cpu_executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/replica/model/greedy_run.h"

namespace kvring::replica {
namespace {

std::unique_ptr<CpuExecutor> LoadModel(Precision precision, int32_t block_size, int64_t kv_tokens = 4096) {
  CpuOptions options;
  options.precision = precision;
  options.block_size = block_size;
  options.kv_tokens = kv_tokens;
  auto executor = CpuExecutor::Load(ModelPath(), options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

void ExpectFirstLogits(const ReferenceAnswer& answer, const std::vector<float>& logits) {
  for (const auto& [token, logit] : answer.first_top5) {
    EXPECT_NEAR(logits[static_cast<size_t>(token)], logit, 1e-3) << answer.name << " token " << token;
  }
}

// All prompts at once, each fed in chunks of its own odd size, so that a step mixes prefills and decodes.
void ExpectAllGreedyTokens(CpuExecutor& executor, const std::vector<int32_t>& chunk_sizes) {
  const std::vector<ReferenceAnswer> answers = LoadReferenceAnswers();
  GreedyRun run(executor);
  std::vector<Running> sequences;
  for (const ReferenceAnswer& answer : answers) sequences.push_back(run.Start(answer.prompt));
  while (true) {
    std::vector<Running*> active;
    std::vector<int32_t> chunks;
    std::vector<size_t> index;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (sequences[i].tokens.size() == answers[i].prompt.size() + answers[i].greedy.size()) continue;
      active.push_back(&sequences[i]);
      chunks.push_back(chunk_sizes[i % chunk_sizes.size()]);
      index.push_back(i);
    }
    if (active.empty()) break;
    ASSERT_NO_FATAL_FAILURE(run.Step(active, chunks));
    for (size_t a = 0; a < active.size(); ++a) {
      Running& s = *active[a];
      if (s.computed != static_cast<int32_t>(s.tokens.size())) continue;
      const ReferenceAnswer& answer = answers[index[a]];
      const size_t done = s.tokens.size() - answer.prompt.size();
      if (done == 0) ExpectFirstLogits(answer, s.logits);
      ASSERT_EQ(BestToken(s.logits), answer.greedy[done]) << answer.name << " token " << done;
      s.tokens.push_back(answer.greedy[done]);
    }
  }
}

TEST(CpuExecutorTest, Fp32_WholePromptsAlone_AllGreedyTokensAndLogitsEqualTheReference) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFp32, 16);
  ASSERT_NE(executor, nullptr);
  const std::vector<ReferenceAnswer> answers = LoadReferenceAnswers();
  ASSERT_EQ(answers.size(), 6U);
  for (const ReferenceAnswer& answer : answers) {
    GreedyRun run(*executor, 7);
    Running sequence = run.Start(answer.prompt);
    run.Prefill(sequence, 1 << 20);
    ExpectFirstLogits(answer, sequence.logits);
    for (size_t i = 0; i < answer.greedy.size(); ++i) {
      ASSERT_EQ(BestToken(sequence.logits), answer.greedy[i]) << answer.name << " token " << i;
      sequence.tokens.push_back(answer.greedy[i]);
      run.Prefill(sequence, 1);
    }
  }
}

TEST(CpuExecutorTest, Fp32_OddChunksBatchedTogetherBlocksOf16_EqualTheReference) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFp32, 16);
  ASSERT_NE(executor, nullptr);
  ExpectAllGreedyTokens(*executor, {7, 13, 1, 29, 3});
}

TEST(CpuExecutorTest, Fp32_OddChunksBatchedTogetherBlocksOf5_EqualTheReference) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFp32, 5);
  ASSERT_NE(executor, nullptr);
  ExpectAllGreedyTokens(*executor, {11, 4, 64});
}

}  // namespace
}  // namespace kvring::replica
