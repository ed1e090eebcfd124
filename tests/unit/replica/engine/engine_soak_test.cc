// The soak (soak_run.h) on the toy executor: with and without a window, and with a host tier.
#include <gtest/gtest.h>

#include "tests/unit/replica/engine/soak_run.h"
#include "tests/unit/replica/engine/toy_block_store.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {
namespace {

struct SoakCase {
  int32_t num_blocks;
  int32_t window;
  uint64_t seed;
};

class EngineSoakTest : public testing::TestWithParam<SoakCase> {};
INSTANTIATE_TEST_SUITE_P(Pools, EngineSoakTest,
                         testing::Values(SoakCase{22, 0, 1}, SoakCase{40, 0, 2}, SoakCase{13, 9, 3},
                                         SoakCase{20, 16, 4}));

TEST_P(EngineSoakTest, TinyPool_EveryAnswerEqualsTheRunAlone) {
  const auto [num_blocks, window, seed] = GetParam();
  ExecutorLimits limits{
      .vocab_size = 32, .context_length = 80, .block_size = 4, .num_blocks = num_blocks, .window = window};
  SoakRun soak({.seed = seed});
  ToyExecutor executor(limits);
  soak.Run(executor);
  limits.num_blocks = 512;
  ToyExecutor roomy(limits);
  soak.Compare(roomy);
  EXPECT_GT(soak.scheduler.preemptions, 100u);
  EXPECT_GT(soak.scheduler.shared_waits, 20u);
  EXPECT_GT(soak.cancelled.size(), 20u);
  EXPECT_GT(soak.cache.hit_tokens, 1000u);
  EXPECT_GT(soak.cache.copies, 100u);
}

TEST(EngineSoakTest, HostTierWithDamagedSlots_EveryAnswerEqualsTheRunAlone) {
  ExecutorLimits limits{.vocab_size = 32, .context_length = 80, .block_size = 4, .num_blocks = 22};
  SoakRun soak({.seed = 5});
  ToyExecutor executor(limits);
  ToyBlockStore store(executor, /*fail_every=*/9);
  soak.Run(executor, {.slots = 40, .store = &store});
  limits.num_blocks = 512;
  ToyExecutor roomy(limits);
  soak.Compare(roomy);
  EXPECT_GT(soak.scheduler.preemptions, 100u);
  EXPECT_GT(soak.cache.tier_hit_tokens, 1000u);
  EXPECT_GT(soak.cache.tier_damaged_blocks, 50u);
  EXPECT_GT(soak.cache.copies, 100u);
}

}  // namespace
}  // namespace kvring::replica
