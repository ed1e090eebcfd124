// Random operations against a naive model (block_manager_trial.h), with and without a window, with a host
// tier and without.
#include <gtest/gtest.h>

#include "common/random.h"
#include "tests/unit/replica/kv/block_manager_trial.h"

namespace kvring::replica {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOperations = 15'000;
#else
constexpr int kOperations = 250'000;
#endif

struct Shape {
  int32_t window;
  int32_t tier_slots;
};
class BlockManagerPropertyTest : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Windows, BlockManagerPropertyTest,
                         testing::Values(Shape{0, 0}, Shape{1, 0}, Shape{4, 0}, Shape{5, 0}));
INSTANTIATE_TEST_SUITE_P(Tiers, BlockManagerPropertyTest,
                         testing::Values(Shape{0, 1}, Shape{0, 9}, Shape{0, 60}));

TEST_P(BlockManagerPropertyTest, RandomOperations_EqualTheNaiveModel) {
  const auto [window, tier_slots] = GetParam();
  Random random(11 + window + tier_slots);
  BlockManagerTrial trial({.window = window, .tier_slots = tier_slots},
                          [&](uint64_t n) { return random.Below(n); });
  for (int i = 0; i < kOperations; ++i) {
    ASSERT_EQ(trial.Operate(), "") << "operation " << i;
    ASSERT_EQ(trial.Check(), "") << "after operation " << i;
  }
  EXPECT_EQ(trial.Finish(), "");
  const uint64_t some = kOperations / 2000;
  EXPECT_GT(trial.hits, some);
  EXPECT_GT(trial.copies, some);
  EXPECT_GT(trial.refusals, some);
  EXPECT_GT(trial.pins, some);
  EXPECT_EQ(trial.nulls > some, window > 0);
  EXPECT_EQ(trial.tier_hits() > some, tier_slots > 0);
}

// The trial can fail.
TEST(BlockManagerTrialTest, BrokenModel_IsFound) {
  Random random(3);
  BlockManagerTrial trial({.broken_model = true}, [&](uint64_t n) { return random.Below(n); });
  std::string fault;
  for (int i = 0; i < 10'000 && fault.empty(); ++i) {
    fault = trial.Operate();
    if (fault.empty()) fault = trial.Check();
  }
  EXPECT_NE(fault, "");
}

}  // namespace
}  // namespace kvring::replica
