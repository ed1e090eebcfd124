// The executor against the reference answers of the bundled model (transformers, fp32, weights dequantised to
// fp32).
#include "replica/model/cpu_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

// Teacher-forced: the reference's tokens are fed, so that one miss does not hide the rest. Counts misses by
// margin.
struct ForcedScore {
  size_t compared = 0;
  int missed_above_bound = 0;
  float largest_missed_margin = 0;
};

ForcedScore ScoreForced(CpuExecutor& executor) {
  ForcedScore score;
  for (const ReferenceAnswer& answer : LoadReferenceAnswers()) {
    GreedyRun run(executor);
    Running sequence = run.Start(answer.prompt);
    run.Prefill(sequence, 1 << 20);
    for (size_t i = 0; i < answer.greedy.size(); ++i) {
      ++score.compared;
      if (BestToken(sequence.logits) != answer.greedy[i]) {
        score.missed_above_bound += answer.margins[i] > kFastMarginBound ? 1 : 0;
        score.largest_missed_margin = std::max(score.largest_missed_margin, answer.margins[i]);
      }
      sequence.tokens.push_back(answer.greedy[i]);
      run.Prefill(sequence, 1);
    }
  }
  return score;
}

TEST(CpuExecutorTest, Fast_TeacherForced_EqualsTheReferenceAboveTheMarginBound) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, 16);
  ASSERT_NE(executor, nullptr);
  const ForcedScore score = ScoreForced(*executor);
  EXPECT_EQ(score.compared, 6 * kGreedyTokens);
  EXPECT_EQ(score.missed_above_bound, 0) << "largest margin missed: " << score.largest_missed_margin;
  RecordProperty("largest_missed_margin", std::to_string(score.largest_missed_margin));
}

// The same bits however the prompt is cut and whatever runs beside it.
TEST(CpuExecutorTest, Fast_ChunkedAndBatched_SameBitsAsAlone) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, 16);
  ASSERT_NE(executor, nullptr);
  const std::vector<ReferenceAnswer> answers = LoadReferenceAnswers();
  std::vector<TokenId> prompt;  // longer than one span of attention
  for (int i = 0; i < 5; ++i) prompt.insert(prompt.end(), answers[5].prompt.begin(), answers[5].prompt.end());
  GreedyRun run(*executor);
  Running whole = run.Start(prompt);
  run.Prefill(whole, 1 << 20);
  Running chunked = run.Start(prompt);
  run.Prefill(chunked, 37);
  EXPECT_EQ(whole.logits, chunked.logits);
  Running batched = run.Start(prompt);
  Running other = run.Start(answers[3].prompt);
  while (batched.computed < static_cast<int32_t>(prompt.size())) {
    other.tokens.push_back(1000);
    run.Step({&other, &batched}, {5, 61});
  }
  EXPECT_EQ(whole.logits, batched.logits);
  for (Running* sequence : {&whole, &chunked}) {
    sequence->tokens.push_back(500);
    run.Prefill(*sequence, 1);
  }
  EXPECT_EQ(whole.logits, chunked.logits);
}

TEST(CpuExecutorTest, BlockCopy_ForkedSequence_ContinuesAsTheOriginal) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, 16, 256);
  ASSERT_NE(executor, nullptr);
  const std::vector<TokenId> prompt = LoadReferenceAnswers()[1].prompt;  // shorter than a block
  ASSERT_LT(prompt.size(), 16U);
  GreedyRun run(*executor);
  Running original = run.Start(prompt);
  run.Prefill(original, 1 << 20);
  original.tokens.push_back(500);
  const auto count = static_cast<int32_t>(prompt.size());
  const BlockId from = original.table[0];
  const BlockId to{from.value == 0 ? 1 : 0};
  run.Prefill(original, 1);
  Batch batch;
  batch.copies.push_back({from, to, count});
  batch.steps.push_back(
      {SequenceId{9}, std::span(original.tokens).subspan(prompt.size(), 1), count, {&to, 1}, 0});
  StepOutput output;
  ASSERT_TRUE(executor->Execute(batch, output).ok());
  EXPECT_TRUE(
      std::equal(output.logits.begin(), output.logits.end(), original.logits.begin(), original.logits.end()));
}

TEST(CpuExecutorTest, LogitsFrom_SelectsRows) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, 16, 256);
  ASSERT_NE(executor, nullptr);
  const std::vector<TokenId> prompt = LoadReferenceAnswers()[1].prompt;
  const BlockId block{0};
  const auto vocab = static_cast<size_t>(executor->limits().vocab_size);
  Batch batch;
  batch.steps.push_back({SequenceId{1}, prompt, 0, {&block, 1}, 0});
  StepOutput output;
  ASSERT_TRUE(executor->Execute(batch, output).ok());
  ASSERT_EQ(output.logits.size(), prompt.size() * vocab);
  const std::vector<float> last(output.logits.end() - static_cast<long>(vocab), output.logits.end());
  batch.steps[0].logits_from = static_cast<int32_t>(prompt.size()) - 1;
  ASSERT_TRUE(executor->Execute(batch, output).ok());
  EXPECT_TRUE(std::equal(output.logits.begin(), output.logits.end(), last.begin(), last.end()));
  batch.steps[0].logits_from = static_cast<int32_t>(prompt.size());
  ASSERT_TRUE(executor->Execute(batch, output).ok());
  EXPECT_TRUE(output.logits.empty());
}

TEST(CpuExecutorTest, Limits_FollowTheOptions) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, 16, 1000);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->limits().num_blocks, 62);
  EXPECT_EQ(executor->limits().vocab_size, 49152);
  EXPECT_EQ(executor->limits().context_length, 8192);
  EXPECT_EQ(executor->limits().kv_bytes_per_token, 23040);
}

TEST(CpuExecutorTest, BadOptions_AreErrorsThatNameTheField) {
  KVRING_SKIP_WITHOUT_MODEL();
  CpuOptions options;
  options.kv_tokens = 5;
  EXPECT_THAT(std::string(CpuExecutor::Load(ModelPath(), options).status().message()),
              testing::HasSubstr("kv_tokens"));
  options = {};
  options.block_size = 0;
  EXPECT_THAT(std::string(CpuExecutor::Load(ModelPath(), options).status().message()),
              testing::HasSubstr("block_size"));
  options = {};
  options.threads = 0;
  EXPECT_THAT(std::string(CpuExecutor::Load(ModelPath(), options).status().message()),
              testing::HasSubstr("threads"));
}

}  // namespace
}  // namespace kvring::replica
