#include "common/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>

namespace kvring {
namespace {

std::vector<TokenId> Iota(int n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// PFX-10: fixed values, so that two processes, releases or architectures can never disagree without this test
// going red. Computed apart from this code, in Python: XXH3 of the PyPI package xxhash and the formula of
// block_hash.h.
TEST(BlockHash, GoldenVectors_PFX_10) {
  const BlockHash root = ChainRoot({.model = "m"});
  EXPECT_EQ(root.value, 0xf3ac56784a2440d9ULL);
  const std::vector<BlockHash> chain = HashChain(root, Iota(64), 16);
  ASSERT_EQ(chain.size(), 4u);
  EXPECT_EQ(chain[0].value, 0xaadec8719b8a7295ULL);
  EXPECT_EQ(chain[3].value, 0xa49ccca1517b006aULL);
  EXPECT_EQ(HashChain(root, std::string(256, 'x'), 256).at(0).value, 0x82d59109c4912d63ULL);
}

// Both sides of a connection compare it: it never changes without a reason that every replica must follow.
TEST(BlockHash, Probe_IsFixed_PFX_10) { EXPECT_EQ(HashProbe(), 0xb49e91f70580fd02ULL); }

TEST(BlockHash, RootFields_EachSeparates_AndBordersCount) {
  std::set<uint64_t> roots;
  for (const CacheIdentity& identity : {CacheIdentity{"a", "", ""},
                                        {"", "a", ""},
                                        {"", "", "a"},
                                        {"ab", "", ""},
                                        {"a", "b", ""},
                                        {"a", "", "b"},
                                        {"", "", ""}}) {
    roots.insert(ChainRoot(identity).value);
  }
  EXPECT_EQ(roots.size(), 7u);
}

TEST(BlockHash, Chain_DependsOnEverythingBefore) {
  const BlockHash root = ChainRoot({});
  std::string text(1024, 'a');
  const auto chain = HashChain(root, text, 256);
  text[0] = 'b';
  const auto changed = HashChain(root, text, 256);
  for (size_t i = 0; i < chain.size(); ++i) EXPECT_NE(chain[i], changed[i]) << i;
  text[0] = 'a';
  text[600] = 'b';
  const auto tail = HashChain(root, text, 256);
  EXPECT_EQ(chain[1], tail[1]);
  EXPECT_NE(chain[2], tail[2]);
  EXPECT_NE(chain[3], tail[3]);
}

TEST(BlockHash, Chain_BlocksAreNotABag) {
  const BlockHash root = ChainRoot({});
  const std::string ab = std::string(64, 'a') + std::string(64, 'b');
  const std::string ba = std::string(64, 'b') + std::string(64, 'a');
  EXPECT_NE(HashChain(root, ab, 64)[1], HashChain(root, ba, 64)[1]);
}

TEST(BlockHash, PartialBlock_HasNoHash) {
  EXPECT_EQ(HashChain(ChainRoot({}), Iota(31), 16).size(), 1u);
  EXPECT_TRUE(HashChain(ChainRoot({}), std::string_view("short"), 256).empty());
}

TEST(BlockHash, NoCollisions_AmongAMillionBlocks) {
  const BlockHash root = ChainRoot({});
  std::set<uint64_t> seen;
  for (TokenId i = 0; i < 1'000'000; ++i) seen.insert(ChainNext(root, std::span<const TokenId>(&i, 1)).value);
  EXPECT_EQ(seen.size(), 1'000'000u);
}

}  // namespace
}  // namespace kvring
