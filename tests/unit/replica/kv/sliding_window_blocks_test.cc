// Blocks under a sliding window: which are given back, what a later request may find, what is never found.
#include <gtest/gtest.h>

#include "replica/kv/block_manager.h"
#include "tests/unit/replica/kv/block_fixture.h"

namespace kvring::replica {
namespace {

BlockManager Windowed(int32_t window, int32_t block_size, int32_t num_blocks = 32,
                      BlockManagerOptions::ChainFunction chain = nullptr) {
  return BlockManager({.num_blocks = num_blocks, .block_size = block_size, .window = window, .chain = chain});
}

std::vector<int32_t> NullEntries(const BlockTable& table) {
  std::vector<int32_t> nulls;
  for (size_t i = 0; i < table.blocks.size(); ++i) {
    if (table.blocks[i] == kNullBlock) nulls.push_back(static_cast<int32_t>(i));
  }
  return nulls;
}

TEST(SlidingWindowBlocksTest, BeforePosition100_Window64_BlocksZeroAndOneGoBack_KVB_08) {
  BlockManager manager = Windowed(64, 16);
  BlockTable table = Computed(manager, Tokens(0, 100));
  EXPECT_EQ(manager.FreeBehind(table, 100), 2);
  EXPECT_EQ(NullEntries(table), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(manager.used_blocks(), 5);
  EXPECT_EQ(manager.FreeBehind(table, 100), 0);
  manager.Release(table);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.stats().double_frees, 0u);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

TEST(SlidingWindowBlocksTest, BlockLargerThanTheWindow_NothingGoesBack_LastStays_KVB_08) {
  BlockManager manager = Windowed(64, 128);
  BlockTable table = Computed(manager, Tokens(0, 100));
  EXPECT_EQ(manager.FreeBehind(table, 100), 0);
  ASSERT_TRUE(manager.Extend(table, 100, 300).ok);
  manager.Commit(table, Tokens(0, 300), 300);
  EXPECT_EQ(manager.FreeBehind(table, 300), 1);  // position 300 sees 237 on: block 0 ends at 127
  EXPECT_EQ(manager.used_blocks(), 2);
}

// Every frontier against the definition: block b stays exactly when some position from `computed` on sees one
// of its slots, or when it is the last.
TEST(SlidingWindowBlocksTest, EveryFrontier_EqualsTheDefinition_KVB_08) {
  for (const int32_t block_size : {1, 3, 16}) {
    for (int32_t window = 1; window <= 40; ++window) {
      for (int32_t computed = 1; computed <= 70; ++computed) {
        BlockManager manager = Windowed(window, block_size, 80);
        BlockTable table = Computed(manager, Tokens(0, computed));
        manager.FreeBehind(table, computed);
        const auto last = static_cast<int32_t>(table.blocks.size()) - 1;
        for (int32_t b = 0; b <= last; ++b) {
          const bool seen = (b + 1) * block_size - 1 > computed - window;
          ASSERT_EQ(table.blocks[b] != kNullBlock, seen || b == last)
              << "window " << window << " block " << b << " of " << block_size << " at " << computed;
        }
      }
    }
  }
}

TEST(SlidingWindowBlocksTest, GrowingSequence_HoldsABoundedNumber) {
  BlockManager manager = Windowed(64, 16, 8);
  const std::vector<TokenId> history = Tokens(0, 2000);
  BlockTable table;
  ASSERT_TRUE(manager.Admit(table, {.tokens = std::span(history).first(1)}).has_value());
  int32_t most = 0;
  for (int32_t computed = 0; computed < 2000; ++computed) {
    ASSERT_TRUE(manager.Extend(table, computed, computed + 1).ok) << computed;
    manager.Commit(table, history, computed + 1);
    most = std::max(most, manager.used_blocks());
    manager.FreeBehind(table, computed + 1);
  }
  EXPECT_EQ(most, manager.BlocksHeldAtMost(1));
  EXPECT_EQ(most, 5);
  EXPECT_EQ(manager.CheckIntegrity(std::vector<const BlockTable*>{&table}), "");
}

TEST(SlidingWindowBlocksTest, SharedPrefix_WhatTheWindowSeesIsEnough) {
  BlockManager manager = Windowed(32, 16, 8);
  const std::vector<TokenId> history = Tokens(0, 128);
  BlockTable first = Computed(manager, history);
  manager.FreeBehind(first, 128);
  manager.Release(first);
  ASSERT_EQ(manager.Evict(6), 6);  // all but what position 128 sees: 97 on, blocks 6 and 7
  BlockTable second;
  std::vector<TokenId> longer = history;
  longer.resize(130, 7);
  EXPECT_EQ(AdmitPrompt(manager, second, longer), 128);
  EXPECT_EQ(NullEntries(second), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(manager.used_blocks(), 3);
  manager.Release(second);
  ASSERT_EQ(manager.Evict(1), 1);
  EXPECT_EQ(Hits(manager, longer), 0);  // neither 7 nor 6 alone will do
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

// A holder's early blocks are given back while it runs, and handed out to somebody else.
TEST(SlidingWindowBlocksTest, FreedBlocksTakenByAnother_AreNotFoundByThePrefixTheyHeld) {
  BlockManager manager = Windowed(32, 16, 8);
  const std::vector<TokenId> history = Tokens(0, 112);
  BlockTable first = Computed(manager, history);
  EXPECT_EQ(manager.FreeBehind(first, 112), 5);
  EXPECT_EQ(Hits(manager, Tokens(0, 49)), 48);
  BlockTable other = Computed(manager, Tokens(1000, 96));  // the free one and all five
  EXPECT_EQ(Hits(manager, Tokens(0, 49)), 0);
  EXPECT_EQ(Hits(manager, Tokens(0, 17)), 0);
  std::vector<TokenId> longer = history;
  longer.push_back(1);
  BlockTable second;
  EXPECT_EQ(AdmitPrompt(manager, second, longer), std::nullopt);  // found, but no block for the last token
  manager.Release(other);
  ASSERT_EQ(AdmitPrompt(manager, second, longer), 112);
  EXPECT_EQ(second.blocks[5], first.blocks[5]);
  EXPECT_EQ(manager.reference_count(second.blocks[6]), 2);
  manager.Release(first);
  manager.Release(second);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

BlockHash Constant(BlockHash, std::span<const TokenId>) { return {42}; }
BlockHash OfTheBlockAlone(BlockHash, std::span<const TokenId> block) { return ChainNext({}, block); }

// The tokens in sight are equal, those before are not: keys and values differ all the same, whatever the hash
// says. Collisions are counted once for a look-up and once per block that cannot be stored.
TEST(SlidingWindowBlocksTest, SameTokensInSight_OtherBeginning_IsAMiss) {
  const std::pair<BlockManagerOptions::ChainFunction, uint64_t> cases[] = {
      {nullptr, 0}, {Constant, 3 + 1 + 4}, {OfTheBlockAlone, 1 + 3}};
  for (const auto& [chain, collisions] : cases) {
    BlockManager manager = Windowed(16, 16, 32, chain);
    const std::vector<TokenId> a = Tokens(0, 64);
    Warm(manager, a);
    ASSERT_GT(manager.cached_blocks(), 0);
    std::vector<TokenId> b = a;
    b[3] = 999;
    EXPECT_EQ(Hits(manager, b), 0);
    Warm(manager, b);
    EXPECT_EQ(manager.stats().collisions, collisions);
  }
}

TEST(SlidingWindowBlocksTest, SaltsAndTheKey_Separate) {
  BlockManager manager = Windowed(16, 16);
  const std::vector<TokenId> prompt = Tokens(0, 64);
  Warm(manager, prompt, MakeCacheRoot({.model = "m", .salt = "a"}));
  EXPECT_EQ(Hits(manager, prompt, MakeCacheRoot({.model = "m", .salt = "a"})), 48);
  EXPECT_EQ(Hits(manager, prompt, MakeCacheRoot({.model = "m", .salt = "b"})), 0);
  EXPECT_NE(KeyedNext(1, prompt, 1), KeyedNext(1, prompt, 2));
}

TEST(SlidingWindowBlocksTest, LongPrompt_TakesOnlyWhatItHoldsAtMost) {
  BlockManager manager = Windowed(32, 16, 6);
  const std::vector<TokenId> prompt = Tokens(0, 1000);
  const BlockManager::AdmitRequest request{.tokens = prompt, .max_blocks = manager.BlocksHeldAtMost(32)};
  BlockTable table;
  ASSERT_EQ(manager.Admit(table, request), 0);
  EXPECT_EQ(manager.used_blocks(), 5);
  for (int32_t computed = 0; computed < 1000;) {
    const int32_t end = std::min(1000, computed + 32);
    ASSERT_TRUE(manager.Extend(table, computed, end).ok) << computed;
    EXPECT_LE(manager.used_blocks(), 5);
    manager.Commit(table, prompt, end);
    manager.FreeBehind(table, end);
    computed = end;
  }
}

TEST(SlidingWindowBlocksTest, Fork_SiblingsGiveBackTheirOwnReferences) {
  BlockManager manager = Windowed(16, 4, 16);
  const std::vector<TokenId> history = Tokens(0, 40);
  BlockTable first = Computed(manager, history);
  BlockTable fork = manager.Fork(first, 40);
  manager.FreeBehind(first, 40);
  EXPECT_EQ(manager.used_blocks(), 10);
  manager.FreeBehind(fork, 40);
  EXPECT_EQ(manager.used_blocks(), 4);
  BlockTable late = manager.Fork(fork, 40);
  EXPECT_EQ(NullEntries(late).size(), 6u);
  for (BlockTable* table : {&first, &fork, &late}) manager.Release(*table);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.stats().double_frees, 0u);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

}  // namespace
}  // namespace kvring::replica
