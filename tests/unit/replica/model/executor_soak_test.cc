// The soak (tests/unit/replica/engine/soak_run.h) on the CPU executor: random tiny models (without a window,
// with one of 9 tokens, with one in half of the layers), and, when it is there, the bundled model. 2,000
// requests each (fewer under a sanitizer); of the bundled model a few, and all with the CMake option
// KVRING_FULL_TESTS.
#include <gtest/gtest.h>

#include "tests/unit/replica/engine/soak_run.h"
#include "tests/unit/replica/model/greedy_run.h"

namespace kvring::replica {
namespace {

#if defined(KVRING_FULL_TESTS)
constexpr uint64_t kTinyModelRequests = 2000;
constexpr uint64_t kBundledModelRequests = 2000;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kTinyModelRequests = 300;
constexpr uint64_t kBundledModelRequests = 12;
#else
constexpr uint64_t kTinyModelRequests = 2000;
constexpr uint64_t kBundledModelRequests = 24;
#endif

void Soak(const std::string& model, const SoakShape& shape, int64_t tiny_tokens, int64_t roomy_tokens,
          Precision precision) {
  CpuOptions options;
  options.precision = precision;
  options.block_size = 4;
  options.kv_tokens = tiny_tokens;
  const auto executor = CpuExecutor::Load(model, options);
  ASSERT_TRUE(executor.ok()) << executor.status();
  options.kv_tokens = roomy_tokens;
  const auto roomy = CpuExecutor::Load(model, options);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  SoakRun soak(shape);
  soak.Run(**executor);
  soak.Compare(**roomy);
  EXPECT_GT(soak.scheduler.preemptions, shape.requests / 20);
  EXPECT_GT(soak.cache.hit_tokens, shape.requests / 4);
  EXPECT_GT(soak.cache.copies, 0u);
  EXPECT_FALSE(soak.cancelled.empty());
}

struct FamilyPool {
  const char* family;
  int64_t tokens;
};

class ExecutorSoakTest : public testing::TestWithParam<FamilyPool> {};
INSTANTIATE_TEST_SUITE_P(Families, ExecutorSoakTest,
                         testing::Values(FamilyPool{"llama3", 60}, FamilyPool{"mistral", 40},
                                         FamilyPool{"qwen2_mixed", 60}),
                         [](const auto& info) { return std::string(info.param.family); });

TEST_P(ExecutorSoakTest, RandomWeights_EveryAnswerEqualsTheRunAlone) {
  const std::string families = KVRING_SOURCE_DIR "/tests/unit/replica/model/testdata/families/";
  const SoakShape shape{
      .requests = kTinyModelRequests, .longest_stem = 16, .longest_tail = 8, .longest_output = 20};
  Soak(families + GetParam().family, shape, GetParam().tokens, /*roomy_tokens=*/1024, Precision::kFp32);
}

TEST(BundledModelSoakTest, BundledModel_EveryAnswerEqualsTheRunAlone) {
  KVRING_SKIP_WITHOUT_MODEL();
  const SoakShape shape{
      .requests = kBundledModelRequests, .longest_stem = 24, .longest_tail = 8, .longest_output = 12};
  Soak(ModelPath(), shape, /*tiny_tokens=*/48, /*roomy_tokens=*/1024, Precision::kFast);
}

}  // namespace
}  // namespace kvring::replica
