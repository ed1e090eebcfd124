// The CUDA executor on the host shim: every model family against transformers, and the soak: mixed requests
// on a tiny pool, each equal to itself run alone.
#include "replica/model/cuda_executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/replica/engine/soak_run.h"
#include "tests/unit/replica/model/golden_logits.h"

namespace kvring::replica {
namespace {

std::unique_ptr<CudaExecutor> Load(const std::string& family, int64_t kv_tokens, int32_t block_size) {
  auto executor = CudaExecutor::Load(FolderOf(family), {.kv_tokens = kv_tokens, .block_size = block_size});
  EXPECT_TRUE(executor.ok()) << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

class CudaFamilyTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, CudaFamilyTest,
                         testing::Values("llama3", "mistral", "qwen2", "qwen3", "gpt2", "qwen2_mixed"),
                         [](const auto& info) { return std::string(info.param); });

// As of the CPU's bf16 path (families_test.cc): 8 bits of mantissa, sharp softmaxes.
TEST_P(CudaFamilyTest, Bf16_LogitsNearTransformers) {
  const Golden golden = LoadGolden(GetParam());
  const auto executor = Load(GetParam(), 60, 5);
  for (const int32_t chunk : {1 << 20, 7}) {
    double error = 0;
    double size = 0;
    ForEachLogit(*executor, golden, chunk, [&](float got, float expected) {
      error += (got - expected) * (got - expected);
      size += expected * expected;
    });
    EXPECT_LT(std::sqrt(error / size), 0.08) << chunk;
  }
}

class CudaSoakTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, CudaSoakTest, testing::Values("llama3", "mistral", "qwen2_mixed"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CudaSoakTest, TinyPool_EveryAnswerEqualsTheRunAlone) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kRequests = 30;
#else
  constexpr uint64_t kRequests = 60;
#endif
  SoakRun soak({.requests = kRequests, .longest_stem = 16, .longest_tail = 8, .longest_output = 20});
  soak.Run(*Load(GetParam(), std::string(GetParam()) == "mistral" ? 40 : 60, 4));
  soak.Compare(*Load(GetParam(), 1024, 4));
  EXPECT_GT(soak.scheduler.preemptions, kRequests / 20);
  EXPECT_GT(soak.cache.hit_tokens, kRequests / 4);
  EXPECT_GT(soak.cache.copies, 0u);
}

TEST(CudaExecutorTest, BadOptions_NameTheField) {
  const auto message = [](const CudaOptions& options) {
    return std::string(CudaExecutor::Load(FolderOf("llama3"), options).status().message());
  };
  EXPECT_NE(message({.block_size = 0}).find("block_size: 0"), std::string::npos);
  EXPECT_NE(message({.kv_tokens = 3}).find("kv_tokens: room for 0 blocks"), std::string::npos);
  EXPECT_NE(message({.device = 9}).find("cuda:9"), std::string::npos);
}

}  // namespace
}  // namespace kvring::replica
