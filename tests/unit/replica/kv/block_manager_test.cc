// Ownership: allocation, references, copy-on-write, eviction.
#include "replica/kv/block_manager.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/replica/kv/block_fixture.h"

namespace kvring::replica {
namespace {

TEST(BlockManagerTest, Release_Twice_SecondIsCountedAndHasNoEffect_KVB01) {
  BlockManager manager = MakeManager(8, 16);
  BlockTable r1;
  ASSERT_TRUE(AdmitPrompt(manager, r1, Tokens(0, 48)).has_value());
  manager.Release(r1);
  manager.Release(r1);
  EXPECT_EQ(manager.stats().double_frees, 1u);
  EXPECT_EQ(manager.free_blocks(), 8);

  std::set<BlockId> distinct;
  std::vector<BlockTable> tables(8);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(AdmitPrompt(manager, tables[i], Tokens(100 * i, 1)).has_value());
    distinct.insert(tables[i].blocks[0]);
  }
  EXPECT_EQ(distinct.size(), 8u);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

TEST(BlockManagerTest, FreeBlocks_SameBlockTwiceInOneList_QueuedOnce_KVB02) {
  BlockManager manager = MakeManager(8, 4);
  BlockTable r1;
  ASSERT_TRUE(AdmitPrompt(manager, r1, Tokens(0, 8)).has_value());
  const BlockTable r2 = manager.Fork(r1, 4);  // b5 is held twice
  const BlockId b5 = r1.blocks[0];
  const BlockId b6 = r1.blocks[1];
  ASSERT_EQ(manager.reference_count(b5), 2);
  ASSERT_EQ(r2.blocks, std::vector<BlockId>{b5});
  const int32_t before = manager.free_blocks();

  manager.FreeBlocks(std::vector<BlockId>{b5, b5, kNullBlock, b6});

  EXPECT_EQ(manager.reference_count(b5), 0);
  EXPECT_EQ(manager.free_blocks(), before + 2);
  EXPECT_EQ(manager.stats().double_frees, 0u);
  EXPECT_EQ(manager.CheckIntegrity(), "");
  manager.FreeBlocks(std::vector<BlockId>{b5});
  EXPECT_EQ(manager.stats().double_frees, 1u);
  EXPECT_EQ(manager.free_blocks(), before + 2);
}

TEST(BlockManagerTest, TableReadmitted_BlocksStillCached_HitsAllButTheLastToken_KVB06) {
  BlockManager manager = MakeManager(8, 16);
  const std::vector<TokenId> history = Tokens(0, 49);  // prompt 40, generated 9
  BlockTable table;
  ASSERT_TRUE(AdmitPrompt(manager, table, Tokens(0, 40)).has_value());
  ASSERT_TRUE(manager.Extend(table, 40, 48).ok);
  manager.Commit(table, history, 48);
  manager.Release(table);
  EXPECT_TRUE(table.blocks.empty());

  const BlockManager::AdmitRequest again{.tokens = history, .max_cached_tokens = 48, .readmission = true};
  EXPECT_EQ(manager.Admit(table, again), 48);
  manager.Release(table);
  manager.Evict(100);
  EXPECT_EQ(manager.Admit(table, again), 0);
  EXPECT_EQ(manager.stats().readmitted_hit_tokens, 48u);
  EXPECT_EQ(manager.stats().hit_tokens, 0u);
}

TEST(BlockManagerTest, Eviction_ForNewData_ErasesTheHashAtOnce_KVB09) {
  BlockManager manager = MakeManager(4, 4);
  const std::vector<TokenId> chain = Tokens(0, 17);
  Warm(manager, Tokens(0, 16));
  ASSERT_EQ(Hits(manager, chain), 16);
  BlockTable other;
  ASSERT_TRUE(AdmitPrompt(manager, other, Tokens(1000, 16)).has_value());
  EXPECT_EQ(Hits(manager, chain), 0);
  EXPECT_EQ(manager.cached_blocks(), 0);
  EXPECT_EQ(manager.stats().evictions, 4u);
}

TEST(BlockManagerTest, Evict_Count_IsHonoured_KVB12) {
  BlockManager manager = MakeManager(120, 4);
  Warm(manager, Tokens(0, 400));
  ASSERT_EQ(manager.cached_blocks(), 100);
  EXPECT_EQ(manager.Evict(7), 7);
  EXPECT_EQ(manager.cached_blocks(), 93);
  EXPECT_EQ(Hits(manager, Tokens(0, 401)), 372);  // the leaves went, the first 93 blocks are there
  EXPECT_EQ(manager.Evict(1000), 93);
  EXPECT_EQ(manager.Evict(1), 0);
  EXPECT_EQ(manager.free_blocks(), 120);
}

// A pool of slots that holds what was written through the tables.
class KvbPool {
 public:
  explicit KvbPool(BlockManager& manager) : manager_(manager), slots_(64, -1) {}

  void Append(BlockTable& table, std::vector<TokenId>& history, TokenId token) {
    const auto at = static_cast<int32_t>(history.size());
    const BlockManager::Extension extension = manager_.Extend(table, at, at + 1);
    ASSERT_TRUE(extension.ok);
    const BlockCopy copy = extension.copy.value_or(BlockCopy{});
    for (int32_t i = 0; i < copy.tokens; ++i) slots_[copy.to.value * 4 + i] = slots_[copy.from.value * 4 + i];
    slots_[table.blocks[at / 4].value * 4 + at % 4] = token;
    history.push_back(token);
    manager_.Commit(table, history, at + 1);
  }

  std::vector<TokenId> Read(const BlockTable& table, size_t length) const {
    std::vector<TokenId> tokens;
    for (size_t p = 0; p < length; ++p) tokens.push_back(slots_[table.blocks[p / 4].value * 4 + p % 4]);
    return tokens;
  }

 private:
  BlockManager& manager_;
  std::vector<TokenId> slots_;
};

TEST(BlockManagerTest, Fork_PartFilledBlock_CopiedOnceByTheFirstWriter_KVB13) {
  BlockManager manager = MakeManager(8, 4);
  KvbPool pool(manager);
  BlockTable r1;
  ASSERT_TRUE(AdmitPrompt(manager, r1, {1}).has_value());
  std::vector<TokenId> h1;
  for (TokenId t = 1; t <= 6; ++t) pool.Append(r1, h1, t);
  BlockTable r2 = manager.Fork(r1, 6);
  std::vector<TokenId> h2 = h1;
  const BlockId full = r1.blocks[0];

  pool.Append(r2, h2, 7);
  EXPECT_EQ(manager.stats().copies, 1u);
  pool.Append(r1, h1, 9);
  EXPECT_EQ(manager.stats().copies, 1u);
  EXPECT_EQ(pool.Read(r1, 7), (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 9}));
  manager.Release(r1);
  pool.Append(r2, h2, 8);
  pool.Append(r2, h2, 10);
  EXPECT_EQ(pool.Read(r2, 9), (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 10}));
  EXPECT_EQ(manager.stats().copies, 1u);
  EXPECT_EQ(r2.blocks[0], full);
  manager.Release(r2);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

TEST(BlockManagerTest, Admit_WithoutRoom_ChangesNothing_KVB14) {
  BlockManager manager = MakeManager(10, 16);
  BlockTable holder;
  ASSERT_TRUE(AdmitPrompt(manager, holder, Tokens(0, 112)).has_value());
  ASSERT_EQ(manager.free_blocks(), 3);
  const BlockManagerStats before = manager.stats();
  BlockTable table;
  EXPECT_FALSE(AdmitPrompt(manager, table, Tokens(500, 80)).has_value());
  EXPECT_EQ(manager.free_blocks(), 3);
  EXPECT_TRUE(table.blocks.empty());
  EXPECT_FALSE(table.held);
  EXPECT_EQ(manager.stats().query_tokens, before.query_tokens);
  EXPECT_FALSE(manager.Extend(holder, 112, 112 + 64).ok);
  EXPECT_EQ(manager.free_blocks(), 3);
  EXPECT_EQ(holder.blocks.size(), 7u);
}

TEST(BlockManagerTest, Admit_HeadroomWouldBeTouched_Refused) {
  BlockManager manager = MakeManager(4, 4);
  BlockTable table;
  const std::vector<TokenId> tokens = Tokens(0, 12);
  EXPECT_FALSE(manager.Admit(table, {.tokens = tokens, .headroom_blocks = 2}).has_value());
  EXPECT_TRUE(manager.Admit(table, {.tokens = tokens, .headroom_blocks = 1}).has_value());
}

// The matched blocks are idle themselves: they cannot be counted as room for the rest.
TEST(BlockManagerTest, Admit_OnlyItsOwnPrefixIsEvictable_Refused) {
  BlockManager manager = MakeManager(4, 4);
  Warm(manager, Tokens(0, 12));
  BlockTable table;
  EXPECT_FALSE(AdmitPrompt(manager, table, Tokens(0, 20)).has_value());
  EXPECT_EQ(manager.cached_blocks(), 3);
  EXPECT_EQ(AdmitPrompt(manager, table, Tokens(0, 16)), 12);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

}  // namespace
}  // namespace kvring::replica
