#include "router/ledger/reuse_levels.h"

#include <gtest/gtest.h>

#include "common/random.h"

namespace kvring::router {
namespace {

TEST(ReuseLevels, HeaderOfFourTokens_EightLostToRounding_PFX_17) {
  // Turn 2 of 71,500 tokens at 4 B each; the prompt before had 71,324 and 71,320 of them are equal.
  const PromptSize size{71'500 * 4, 71'500};
  const ReuseLevels levels =
      LevelsOf({.block_tokens = 16}, size,
               {.if_moved = 71'324 * 4, .any_key = 71'320 * 4, .same_key = 71'320 * 4}, 71'312);
  EXPECT_EQ(levels.ceiling, 71'312);
  ReuseSums sums;
  sums.Add(levels);
  EXPECT_EQ(sums.rounding, 8);
  EXPECT_EQ(sums.diverged, 4);
  EXPECT_EQ(sums.never_seen, 71'500 - 71'324);
  EXPECT_EQ(sums.not_served, 0);
  EXPECT_EQ(sums.residual(), 0);
}

TEST(ReuseLevels, Rule_WholeBlocksNeverTheLastTokenNothingBelowTheLeast) {
  EXPECT_EQ(ReusableTokens({.block_tokens = 16}, 40, 100), 32);
  EXPECT_EQ(ReusableTokens({.block_tokens = 16}, 64, 64), 48);
  EXPECT_EQ(ReusableTokens({.block_tokens = 16}, 0, 0), 0);
  EXPECT_EQ(ReusableTokens({.block_tokens = 128, .min_tokens = 1024}, 1023, 4000), 0);
  EXPECT_EQ(ReusableTokens({.block_tokens = 128, .min_tokens = 1024}, 1300, 4000), 1280);
}

TEST(ReuseLevels, OneCause_MovesOneRowByItsTokens) {
  const PromptSize size{4000, 1000};
  const auto sums = [&](const MatchedBytes& matched, std::optional<int64_t> cached) {
    ReuseSums one;
    one.Add(LevelsOf({}, size, matched, cached));
    return one;
  };
  const ReuseSums clean = sums({0, 3200, 3200}, 800);
  EXPECT_EQ(clean.never_seen, 200);
  EXPECT_EQ(clean.ceiling, 800);
  const ReuseSums key = sums({0, 3200, 0}, 0);
  EXPECT_EQ(key.other_key, 800);
  EXPECT_EQ(key.never_seen, 200);
  EXPECT_EQ(key.ceiling, 0);
  const ReuseSums early = sums({3200, 0, 0}, 0);
  EXPECT_EQ(early.diverged, 800);
  EXPECT_EQ(early.other_key, 0);
  const ReuseSums lost = sums({0, 3200, 3200}, 16);
  EXPECT_EQ(lost.not_served, 784);
  const ReuseSums more = sums({0, 3200, 3200}, 900);
  EXPECT_EQ(more.surplus, 100);
  EXPECT_EQ(more.not_served, 0);
}

TEST(ReuseLevels, AnyNumbers_TelescopeWithoutResidual) {
  Random random(3);
  ReuseSums sums;
  for (int i = 0; i < 2000; ++i) {
    const PromptSize size{random.Below(10'000), static_cast<int64_t>(random.Below(3000))};
    const auto some = [&] { return random.Below(size.bytes + 1); };
    std::optional<int64_t> cached;
    if (random.Below(3) > 0) cached = static_cast<int64_t>(random.Below(3000));
    const ReuseLevels levels =
        LevelsOf({.block_tokens = 16, .min_tokens = 64}, size, {some(), some(), some()}, cached);
    EXPECT_GE(levels.prompt, levels.if_moved);
    EXPECT_GE(levels.if_moved, levels.any_key);
    EXPECT_GE(levels.any_key, levels.same_key);
    EXPECT_GE(levels.same_key, levels.ceiling);
    sums.Add(levels);
    ASSERT_EQ(sums.residual(), 0);
  }
}

}  // namespace
}  // namespace kvring::router
