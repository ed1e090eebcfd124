// The prefix cache: what is found, what is never found, what is counted.
#include <gtest/gtest.h>

#include "replica/kv/block_manager.h"
#include "tests/unit/replica/kv/block_fixture.h"

namespace kvring::replica {
namespace {

CacheRoot RootOf(std::string_view adapter, std::string_view salt) {
  return MakeCacheRoot({.model = "m", .adapter = adapter, .salt = salt});
}

TEST(BlockManagerPrefixTest, SecondPrompt_HitsWholeBlocksOfAllButTheLastToken_PFX01) {
  for (const int32_t length : {15, 16, 17, 32, 33, 48, 49, 64}) {
    BlockManager manager = MakeManager(16, 16);
    const std::vector<TokenId> prompt = Tokens(0, length);
    Warm(manager, prompt);
    BlockTable again;
    EXPECT_EQ(AdmitPrompt(manager, again, prompt), (length - 1) / 16 * 16) << length;
    manager.Commit(again, prompt, length);  // the recomputed last block is merged with the one in the cache
    manager.Release(again);
    EXPECT_EQ(Hits(manager, Tokens(0, length + 20)), length / 16 * 16) << length;
    EXPECT_EQ(manager.cached_blocks(), length / 16) << length;
  }
}

TEST(BlockManagerPrefixTest, PartOfABlock_IsNeverTaken_PFX02) {
  BlockManager manager = MakeManager(8, 2048);
  const std::vector<TokenId> prompt = Tokens(0, 7987);
  Warm(manager, prompt);
  EXPECT_EQ(7987 - Hits(manager, prompt), 1843);
}

TEST(BlockManagerPrefixTest, Salts_NeverShare_PFX05) {
  BlockManager manager = MakeManager(512, 16);
  const std::vector<TokenId> prompt = Tokens(0, 1024);
  std::vector<int32_t> cached;
  for (const char* salt : {"A", "A", "B", "", ""}) {
    BlockTable table{.root = RootOf("", salt)};
    cached.push_back(*AdmitPrompt(manager, table, prompt));
    manager.Commit(table, prompt, 1024);
    manager.Release(table);
  }
  EXPECT_EQ(cached, (std::vector<int32_t>{0, 1008, 0, 0, 1008}));
}

TEST(BlockManagerPrefixTest, Adapters_NeverShare_ReloadIsAnotherIdentity_PFX06) {
  BlockManager manager = MakeManager(64, 16);
  const std::vector<TokenId> prompt = Tokens(0, 65);
  std::vector<int32_t> cached;
  for (const char* adapter : {"", "a#1", "b#1", "", "a#1", "a#2"}) {
    BlockTable table{.root = RootOf(adapter, "")};
    cached.push_back(*AdmitPrompt(manager, table, prompt));
    manager.Commit(table, prompt, 65);
    manager.Release(table);
  }
  EXPECT_EQ(cached, (std::vector<int32_t>{0, 0, 0, 64, 64, 0}));
}

BlockHash Constant(BlockHash, std::span<const TokenId>) { return {42}; }
BlockHash EightBits(BlockHash parent, std::span<const TokenId> block) {
  return {ChainNext(parent, block).value & 0xff};
}

// Every hit must be a prefix that was really computed under the same root.
void ExpectOnlyTrueHits(BlockManagerOptions::ChainFunction chain) {
  BlockManager manager = MakeManager(4096, 4, chain);
  std::vector<BlockTable> held;
  for (int32_t p = 0; p < 200; ++p) {
    const std::vector<TokenId> prompt = Tokens(1000 * p, 40);
    BlockTable table{.root = RootOf("", p % 2 == 0 ? "x" : "y")};
    EXPECT_EQ(AdmitPrompt(manager, table, prompt), 0) << p;
    manager.Commit(table, prompt, 40);
    held.push_back(table);
  }
  EXPECT_GT(manager.stats().collisions, 0u);
  std::vector<const BlockTable*> tables;
  for (const BlockTable& table : held) tables.push_back(&table);
  EXPECT_EQ(manager.CheckIntegrity(tables), "");
  EXPECT_LE(Hits(manager, Tokens(0, 41), RootOf("", "x")), 40);
  EXPECT_EQ(Hits(manager, Tokens(0, 41), RootOf("", "y")), 0);
}

TEST(BlockManagerPrefixTest, ConstantHash_NeverServesAnother_PFX08) { ExpectOnlyTrueHits(Constant); }
TEST(BlockManagerPrefixTest, HashOfEightBits_NeverServesAnother_PFX08) { ExpectOnlyTrueHits(EightBits); }

// Equal tokens behind different prefixes: with a constant hash only the comparison of the parent tells them
// apart.
TEST(BlockManagerPrefixTest, ConstantHash_SameTokensOtherParent_IsAMiss_PFX08) {
  BlockManager manager = MakeManager(8, 4, Constant);
  Warm(manager, {1, 1, 1, 1});
  EXPECT_EQ(Hits(manager, {1, 1, 1, 1, 1, 1, 1, 1, 1}), 4);
  EXPECT_EQ(Hits(manager, {2, 2, 2, 2, 1, 1, 1, 1, 1}), 0);
}

TEST(BlockManagerPrefixTest, AbsentAndEmptyIdentity_AreOneRoot_PFX10) {
  EXPECT_EQ(MakeCacheRoot({.model = "m"}), MakeCacheRoot({.model = "m", .adapter = "", .salt = ""}));
  EXPECT_EQ(MakeCacheRoot({.model = "m"}).hash, ChainRoot({.model = "m"}));
  EXPECT_NE(MakeCacheRoot({.model = "m"}), MakeCacheRoot({.model = "m", .adapter = "m"}));
}

// The events carry the hashes of common/block_hash.h, so that a router which hashes tokens finds them.
TEST(BlockManagerPrefixTest, StoredEvents_CarryTheCommonChain_PFX10) {
  BlockManager manager = MakeManager(8, 16);
  const CacheRoot root = RootOf("a", "s");
  Warm(manager, Tokens(0, 64), root);
  const std::vector<BlockHash> chain = HashChain(root.hash, Tokens(0, 64), 16);
  const CacheEventBatch batch = manager.events().Take();
  ASSERT_EQ(batch.events.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch.events[i],
              (CacheEvent{CacheEvent::Kind::kStored, chain[i], i == 0 ? root.hash : chain[i - 1]}));
  }
}

TEST(BlockManagerPrefixTest, LookupBeforeEviction_IsRepeatedAtAdmission_PFX23) {
  BlockManager manager = MakeManager(8, 4);
  Warm(manager, Tokens(0, 12));
  BlockTable holder = Computed(manager, Tokens(500, 12));  // 3 cached, 3 used, 2 free
  BlockTable table;
  const std::vector<TokenId> prompt = Tokens(0, 24);
  ASSERT_EQ(manager.Match(table, prompt, 23), 12);
  ASSERT_FALSE(AdmitPrompt(manager, table, prompt).has_value());  // needs 3 more than the 2 free
  EXPECT_EQ(manager.Evict(3), 3);
  manager.Release(holder);
  const uint64_t queries = manager.stats().query_tokens;
  EXPECT_EQ(AdmitPrompt(manager, table, prompt), 0);
  EXPECT_EQ(manager.stats().query_tokens, queries + 24);
  EXPECT_EQ(manager.stats().hit_tokens, 0u);
}

TEST(BlockManagerPrefixTest, FailedAttempts_AreNotCounted_USG07) {
  BlockManager manager = MakeManager(16, 16);
  Warm(manager, Tokens(0, 160));
  BlockTable holder;
  ASSERT_TRUE(AdmitPrompt(manager, holder, Tokens(5000, 90)).has_value());  // the 6 free ones
  const BlockManagerStats before = manager.stats();
  BlockTable table;
  const std::vector<TokenId> prompt = Tokens(0, 200);
  for (int attempt = 0; attempt < 4; ++attempt) EXPECT_FALSE(AdmitPrompt(manager, table, prompt).has_value());
  manager.Release(holder);
  EXPECT_EQ(AdmitPrompt(manager, table, prompt), 160);
  EXPECT_EQ(manager.stats().query_tokens - before.query_tokens, 200u);
  EXPECT_EQ(manager.stats().hit_tokens - before.hit_tokens, 160u);
}

TEST(BlockManagerPrefixTest, FirstHolderStillPrefilling_WrittenBlocksAreShared) {
  BlockManager manager = MakeManager(32, 16);
  const std::vector<TokenId> prompt = Tokens(0, 160);
  BlockTable first;
  ASSERT_EQ(AdmitPrompt(manager, first, prompt), 0);
  manager.Commit(first, prompt, 70);
  BlockTable second;
  EXPECT_EQ(AdmitPrompt(manager, second, prompt), 64);
  EXPECT_EQ(second.blocks[3], first.blocks[3]);
  EXPECT_NE(second.blocks[4], first.blocks[4]);
  manager.Commit(first, prompt, 160);
  manager.Commit(second, prompt, 160);  // computed twice, kept once
  EXPECT_EQ(second.blocks, first.blocks);
  EXPECT_EQ(manager.stats().merged_blocks, 6u);
  EXPECT_EQ(manager.used_blocks(), 10);
}

TEST(BlockManagerPrefixTest, Clear_RunningTableKeepsItsBlocks_NothingMatches) {
  BlockManager manager = MakeManager(16, 4);
  BlockTable running = Computed(manager, Tokens(0, 8));
  Warm(manager, Tokens(100, 8));
  manager.Clear();
  EXPECT_EQ(manager.cached_blocks(), 0);
  EXPECT_EQ(manager.used_blocks(), 2);
  EXPECT_EQ(Hits(manager, Tokens(0, 9)), 0);
  ASSERT_TRUE(manager.Extend(running, 8, 12).ok);
  manager.Commit(running, Tokens(0, 12), 12);  // its ancestors are unknown: must not become matchable
  EXPECT_EQ(manager.Snapshot().size(), 0u);
  manager.Release(running);
  EXPECT_EQ(manager.free_blocks(), 16);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

// A window gives leading blocks back first: what they lead to must not match once they are gone.
TEST(BlockManagerPrefixTest, LeadingBlockGoneFirst_DescendantsDoNotMatch_AndCanBeStoredAgain) {
  BlockManager manager = MakeManager(4, 4);
  BlockTable table = Computed(manager, Tokens(0, 12));
  const BlockId front = table.blocks[0];
  manager.FreeBlocks(std::vector<BlockId>{front});
  table.blocks[0] = kNullBlock;
  ASSERT_EQ(manager.Evict(1), 1);
  EXPECT_EQ(Hits(manager, Tokens(0, 13)), 0);
  BlockTable again;
  ASSERT_EQ(AdmitPrompt(manager, again, Tokens(0, 8)), 0);
  manager.Commit(again, Tokens(0, 8), 8);
  EXPECT_EQ(Hits(manager, Tokens(0, 9)), 8);
  manager.Release(table);
  manager.Release(again);
  EXPECT_EQ(manager.used_blocks(), 0);
  EXPECT_EQ(manager.CheckIntegrity(), "");
}

}  // namespace
}  // namespace kvring::replica
