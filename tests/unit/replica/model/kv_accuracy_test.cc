// What keys and values in f16, bf16 and int8 cost: perplexity on a fixed text (testdata/accuracy_text.txt,
// our own words) against the exact path, and greedy tokens against the reference answers by their margins.
// The suite takes the first KVRING_ACCURACY_TOKENS (256) tokens of the text; the whole text is about 1,150.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/runtime/files.h"
#include "replica/model/gguf_text.h"
#include "replica/model/tokenizer.h"
#include "tests/unit/replica/model/greedy_run.h"

namespace kvring::replica {
namespace {

using kernels::KvType;

std::unique_ptr<CpuExecutor> LoadModel(Precision precision, KvType type, kernels::Isa isa) {
  CpuOptions options;
  options.precision = precision;
  options.kv_type = type;
  options.kv_tokens = 4096;
  options.isa = isa;
  auto executor = CpuExecutor::Load(ModelPath(), options);
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

std::vector<TokenId> TheText() {
  const auto text =
      ReadFile(KVRING_SOURCE_DIR "/tests/unit/replica/model/testdata/accuracy_text.txt", 1 << 20);
  const auto file = GgufFile::Open(ModelPath());
  const auto tokenizer = Tokenizer::Create(ReadTokenizerSpec(*file).value());
  std::vector<TokenId> tokens = tokenizer->Encode(*text, ControlTokens::kAsText);
  const char* given = std::getenv("KVRING_ACCURACY_TOKENS");
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(given != nullptr ? std::atol(given) : 256)));
  return tokens;
}

double LogSumExp(std::span<const float> logits) {
  const float peak = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - peak));
  return peak + std::log(sum);
}

// exp of the mean negative log-likelihood of each token but the first.
double Perplexity(CpuExecutor& executor, const std::vector<TokenId>& tokens) {
  constexpr size_t kChunk = 64;
  const auto vocab = static_cast<size_t>(executor.limits().vocab_size);
  std::vector<BlockId> table;
  for (int32_t b = 0; b * executor.limits().block_size < static_cast<int32_t>(tokens.size()); ++b)
    table.push_back(BlockId{b});
  double loss = 0;
  for (size_t at = 0; at < tokens.size(); at += kChunk) {
    const size_t count = std::min(kChunk, tokens.size() - at);
    Batch batch;
    batch.steps.push_back(
        {SequenceId{1}, std::span(tokens).subspan(at, count), static_cast<int32_t>(at), table, 0});
    StepOutput output;
    EXPECT_TRUE(executor.Execute(batch, output).ok());
    for (size_t i = 0; i < count && at + i + 1 < tokens.size(); ++i) {
      const auto row = output.logits.subspan(i * vocab, vocab);
      loss += LogSumExp(row) - static_cast<double>(row[static_cast<size_t>(tokens[at + i + 1])]);
    }
  }
  return std::exp(loss / static_cast<double>(tokens.size() - 1));
}

// Keys and values alone: everything else exact.
TEST(KvAccuracyTest, Perplexity_OfEachKvType_IsWithinOnePercentOfTheExactPath) {
  KVRING_SKIP_WITHOUT_MODEL();
  const std::vector<TokenId> tokens = TheText();
  const auto perplexity = [&](Precision precision, KvType type) {
    return Perplexity(*LoadModel(precision, type, kernels::BestIsa()), tokens);
  };
  const double exact = perplexity(Precision::kFp32, KvType::kF32);
  const double exact_int8 = perplexity(Precision::kFp32, KvType::kInt8);
  const double fast_f16 = perplexity(Precision::kFast, KvType::kF16);
  const double fast = perplexity(Precision::kFast, KvType::kBf16);
  const double fast_int8 = perplexity(Precision::kFast, KvType::kInt8);
  std::printf(
      "perplexity over %zu tokens: exact %.4f, its weights with int8 %.4f; fast with f16 %.4f, bf16 %.4f, "
      "int8 %.4f\n",
      tokens.size(), exact, exact_int8, fast_f16, fast, fast_int8);
  EXPECT_GT(exact, 2);
  EXPECT_LT(exact, 60);
  EXPECT_NEAR(exact_int8 / exact, 1, 0.01);
  EXPECT_NEAR(fast_f16 / exact, 1, 0.01);
  EXPECT_NEAR(fast / exact, 1, 0.01);
  EXPECT_NEAR(fast_int8 / exact, 1, 0.01);
}

// The reference's tokens are fed, so that one miss does not hide the rest.
float LargestMissedMargin(CpuExecutor& executor, size_t tokens) {
  float largest = 0;
  for (const ReferenceAnswer& answer : LoadReferenceAnswers()) {
    GreedyRun run(executor);
    Running sequence = run.Start(answer.prompt);
    run.Prefill(sequence, 1 << 20);
    for (size_t i = 0; i < tokens; ++i) {
      if (BestToken(sequence.logits) != answer.greedy[i]) largest = std::max(largest, answer.margins[i]);
      sequence.tokens.push_back(answer.greedy[i]);
      run.Prefill(sequence, 1);
    }
  }
  return largest;
}

TEST(KvAccuracyTest, Int8_TeacherForced_EqualsTheReferenceAboveTheMarginBound) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto fast = LoadModel(Precision::kFast, KvType::kInt8, kernels::BestIsa());
  const float missed = LargestMissedMargin(*fast, 64);
  std::printf("largest margin missed: %.3f with fast weights\n", missed);
  EXPECT_LE(missed, kFastMarginBound);
  const auto exact = LoadModel(Precision::kFp32, KvType::kInt8, kernels::BestIsa());
  const float missed_exact = LargestMissedMargin(*exact, 12);
  std::printf("largest margin missed: %.3f with exact weights\n", missed_exact);
  EXPECT_LE(missed_exact, kInt8KvMarginBound);
}

TEST(KvAccuracyTest, ReportedBytes_AreThoseOfThePool) {
  KVRING_SKIP_WITHOUT_MODEL();
  const auto executor = LoadModel(Precision::kFast, KvType::kInt8, kernels::BestIsa());
  EXPECT_EQ(executor->limits().kv_bytes_per_token, 2 * 30 * 3 * (64 + 4));
  EXPECT_EQ(KvBytesPerToken(executor->config(), KvType::kInt8), 2 * 30 * 3 * (64 + 4));
  EXPECT_EQ(KvBytesPerToken(executor->config(), KvType::kBf16), 23040);
}

TEST(KvAccuracyTest, UnknownTypes_AreNamed) {
  EXPECT_EQ(ParseKvType("int8").value(), KvType::kInt8);
  EXPECT_NE(ParseKvType("fp8").status().message().find("'fp8'"), std::string::npos);
}

}  // namespace
}  // namespace kvring::replica
