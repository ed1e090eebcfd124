// Reported faults of block managers, and what a request says of its cached blocks: retention, pins, who
// computes what for whom.
#include <gtest/gtest.h>

#include "replica/kv/block_manager.h"
#include "tests/unit/replica/kv/block_fixture.h"

namespace kvring::replica {
namespace {

// A copy to and one from elsewhere are pending when the request is aborted: each holds a fork, so the blocks
// go back once, after the last completion, in whatever order they come.
TEST(BlockCasesTest, AbortWhileCopiesArePending_BlocksGoBackOnceAfterBoth_KVB_03) {
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}}) {
    BlockManager manager = MakeManager(8, 16);
    BlockTable request = Computed(manager, Tokens(0, 70));
    BlockTable send = manager.Fork(request, 70);
    BlockTable receive = manager.Fork(request, 70);
    BlockTable* holders[] = {&request, &send, &receive};
    for (const int who : order) {
      EXPECT_EQ(manager.used_blocks(), 5);
      manager.Release(*holders[who]);
    }
    EXPECT_EQ(manager.used_blocks(), 0);
    EXPECT_EQ(manager.available_blocks(), 8);
    EXPECT_EQ(manager.stats().double_frees, 0u);
    for (BlockTable* holder : holders) manager.Release(*holder);  // late, a second time: counted, no effect
    EXPECT_EQ(manager.stats().double_frees, 3u);
    EXPECT_EQ(manager.available_blocks(), 8);
    EXPECT_EQ(manager.CheckIntegrity(), "");
  }
}

// A chain of 64 tokens of which 48 are matched and held: the blocks of these stay, what follows goes, and
// after the release everything can go.
TEST(BlockCasesTest, MatchedPartIsHeldExactly_TheRestIsEvictable_KVB_11) {
  BlockManager manager = MakeManager(8, 16);
  Warm(manager, Tokens(0, 64));
  BlockTable lock;
  const std::vector<TokenId> matched = Tokens(0, 48);
  ASSERT_EQ(manager.Admit(lock, {.tokens = matched, .max_cached_tokens = 48}), 48);
  EXPECT_EQ(manager.Evict(100), 1);
  EXPECT_EQ(Hits(manager, Tokens(0, 65)), 48);
  EXPECT_EQ(manager.used_blocks(), 3);
  manager.Release(lock);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.Evict(100), 3);
  EXPECT_EQ(manager.free_blocks(), 8);
}

// Every length of a match: held exactly, not a block more.
TEST(BlockCasesTest, EveryMatchLength_IsHeldExactly_KVB_11) {
  for (int32_t held = 0; held <= 64; held += 16) {
    BlockManager manager = MakeManager(8, 16);
    Warm(manager, Tokens(0, 64));
    std::vector<TokenId> other = Tokens(0, held);
    other.resize(held + 5, 999);  // goes its own way behind the match
    BlockTable lock;
    ASSERT_EQ(AdmitPrompt(manager, lock, other), held);
    EXPECT_EQ(manager.Evict(100), (64 - held) / 16);
    manager.Release(lock);
    EXPECT_EQ(manager.Evict(100), held / 16);
    EXPECT_EQ(manager.free_blocks(), 8);
  }
}

BlockTable Kept(BlockManager& manager, int32_t first, Retention retention, int64_t ttl_ns = 0) {
  BlockTable table{.retention = {retention, Duration(ttl_ns)}};
  const std::vector<TokenId> tokens = Tokens(first, 32);
  AdmitPrompt(manager, table, tokens);
  manager.Commit(table, tokens, 32);
  manager.Release(table);
  return table;
}

TEST(RetentionTest, LowGoesFirst_HighLast_EachLeafFirst) {
  BlockManager manager = MakeManager(8, 16);
  Kept(manager, 0, Retention::kHigh, 100);
  Kept(manager, 1000, Retention::kNormal);
  Kept(manager, 2000, Retention::kLow);
  EXPECT_EQ(manager.Evict(1), 1);
  EXPECT_EQ(Hits(manager, Tokens(2000, 33)), 16);
  EXPECT_EQ(manager.Evict(2), 2);
  EXPECT_EQ(Hits(manager, Tokens(2000, 33)), 0);
  EXPECT_EQ(Hits(manager, Tokens(1000, 33)), 16);
  EXPECT_EQ(manager.Evict(2), 2);
  EXPECT_EQ(Hits(manager, Tokens(0, 33)), 16);
}

TEST(RetentionTest, High_FallsToNormalWhenItsTimeIsOver) {
  BlockManager manager = MakeManager(8, 16);
  manager.AdvanceTo({0});
  Kept(manager, 0, Retention::kHigh, 100);
  Kept(manager, 1000, Retention::kNormal);
  manager.AdvanceTo({100});  // now the most recently used of the normal ones
  Kept(manager, 2000, Retention::kNormal);
  EXPECT_EQ(manager.Evict(2), 2);
  EXPECT_EQ(Hits(manager, Tokens(1000, 33)), 0);
  EXPECT_EQ(manager.Evict(2), 2);
  EXPECT_EQ(Hits(manager, Tokens(0, 33)), 0);
  EXPECT_EQ(Hits(manager, Tokens(2000, 33)), 32);
}

// Another request that shares the beginning does not lower what was asked for it.
TEST(RetentionTest, SharedBlocks_KeepTheHigherClass) {
  BlockManager manager = MakeManager(8, 16);
  Kept(manager, 0, Retention::kHigh, 100);
  Kept(manager, 0, Retention::kLow);
  Kept(manager, 1000, Retention::kNormal);
  EXPECT_EQ(manager.Evict(2), 2);
  EXPECT_EQ(Hits(manager, Tokens(0, 33)), 32);
}

TEST(RetentionTest, Pinned_IsNeverEvicted_UntilItsTimeIsOver_OrItIsUnpinned) {
  BlockManager manager = MakeManager(8, 16);
  Kept(manager, 0, Retention::kPinned, 100);
  EXPECT_EQ(manager.pinned_blocks(), 2);
  EXPECT_EQ(manager.available_blocks(), 6);
  EXPECT_EQ(manager.Evict(8), 0);
  BlockTable big;
  EXPECT_FALSE(AdmitPrompt(manager, big, Tokens(5000, 7 * 16)).has_value());
  EXPECT_TRUE(AdmitPrompt(manager, big, Tokens(5000, 6 * 16)).has_value());
  manager.Release(big);
  EXPECT_EQ(Hits(manager, Tokens(0, 33)), 32);
  manager.AdvanceTo({100});
  EXPECT_EQ(manager.pinned_blocks(), 0);
  EXPECT_EQ(manager.Evict(8), 2);

  Kept(manager, 0, Retention::kPinned, 100);
  EXPECT_EQ(manager.Unpin(), 2);
  EXPECT_EQ(manager.Evict(8), 2);
}

TEST(RetentionTest, Pins_TakeHalfOfThePoolAtMost_FirstBlocksFirst) {
  BlockManager manager = MakeManager(8, 16);
  BlockTable table{.retention = {Retention::kPinned, Duration(100)}};
  const std::vector<TokenId> tokens = Tokens(0, 96);
  AdmitPrompt(manager, table, tokens);
  manager.Commit(table, tokens, 96);
  manager.Release(table);
  EXPECT_EQ(manager.pinned_blocks(), 4);
  EXPECT_EQ(manager.stats().pins_refused, 2u);
  EXPECT_EQ(manager.Evict(8), 2);
  EXPECT_EQ(Hits(manager, Tokens(0, 97)), 64);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

TEST(RetentionTest, Clear_ForgetsPins) {
  BlockManager manager = MakeManager(8, 16);
  Kept(manager, 0, Retention::kPinned, 100);
  manager.Clear();
  EXPECT_EQ(manager.pinned_blocks(), 0);
  EXPECT_EQ(manager.free_blocks(), 8);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

TEST(BeingComputedTest, FromAdmissionUntilCommitOrRelease) {
  BlockManager manager = MakeManager(32, 16);
  const std::vector<TokenId> prompt = Tokens(0, 100);
  BlockTable first;
  BlockTable second;
  EXPECT_FALSE(manager.IsBeingComputed(second, prompt, 99));
  ASSERT_TRUE(AdmitPrompt(manager, first, prompt).has_value());
  EXPECT_TRUE(manager.IsBeingComputed(second, prompt, 99));
  manager.Commit(first, prompt, 50);
  EXPECT_TRUE(manager.IsBeingComputed(second, prompt, 99));
  EXPECT_FALSE(manager.IsBeingComputed(second, prompt, 48)) << "all it may take is there";
  manager.Commit(first, prompt, 96);
  EXPECT_FALSE(manager.IsBeingComputed(second, prompt, 99));

  std::vector<TokenId> longer = Tokens(0, 200);
  manager.Release(first);
  ASSERT_TRUE(AdmitPrompt(manager, first, longer).has_value());
  EXPECT_TRUE(manager.IsBeingComputed(second, longer, 199));
  manager.Release(first);
  EXPECT_FALSE(manager.IsBeingComputed(second, longer, 199));
}

TEST(PartialHitsTest, AreCountedApart) {
  BlockManager manager = MakeManager(32, 16);
  Warm(manager, Tokens(0, 64));   // a miss
  Warm(manager, Tokens(0, 64));   // full: 48 of at most 63
  Warm(manager, Tokens(0, 100));  // partial
  Warm(manager, Tokens(0, 10));   // shorter than a block: a miss
  EXPECT_EQ(manager.stats().misses, 2u);
  EXPECT_EQ(manager.stats().full_hits, 1u);
  EXPECT_EQ(manager.stats().partial_hits, 1u);
  EXPECT_EQ(manager.stats().hit_tokens, 48u + 64u);
}

}  // namespace
}  // namespace kvring::replica
