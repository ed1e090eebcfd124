#include "router/fleet/residency_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <string>

#include "common/random.h"

namespace kvring::router {
namespace {

constexpr int64_t kRoomy = 64 << 20;

std::string Text(uint64_t seed, size_t bytes) {
  Random random(seed);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>('a' + random.Below(26));
  return text;
}

PromptKey Key(const std::string& text, std::string_view model = "m", std::string_view adapter = {},
              std::string_view salt = {}) {
  return MakePromptKey({model, adapter, salt}, std::string_view(text));
}

std::vector<uint32_t> EndsEvery(uint32_t step, size_t bytes) {
  std::vector<uint32_t> ends;
  for (uint32_t at = step; at <= bytes; at += step) ends.push_back(at);
  return ends;
}

class Index : public ::testing::Test {
 protected:
  void Insert(const std::string& text, uint32_t replica) {
    const PromptKey key = Key(text);
    index_.Insert({.prompt = &key}, replica);
    index_.CheckIntegrity();
  }
  uint32_t Depth(const std::string& text, uint32_t replica) {
    index_.Locate(Key(text), path_);
    return index_.DepthOf(path_, replica);
  }
  Residency Resolve(const std::string& text, uint32_t replica) {
    const PromptKey key = Key(text);
    index_.Locate(key, path_);
    return index_.Resolve(path_, key, replica);
  }

  ResidencyIndex index_{kRoomy};
  ResidencyPath path_;
};

TEST_F(Index, Depth_PromptHeldByTwo_EachToItsOwnLength) {
  const std::string text = Text(1, 100 * 256 + 17);
  Insert(text.substr(0, 30 * 256), 3);
  Insert(text, 5);
  EXPECT_EQ(Depth(text, 3), 30u);
  EXPECT_EQ(Depth(text, 5), 100u);
  EXPECT_EQ(Depth(text, 4), 0u);
  EXPECT_EQ(Depth(text.substr(0, 40 * 256) + Text(2, 900), 5), 40u);
}

TEST_F(Index, Holders_DeepestFirst_EachOnce) {
  const std::string text = Text(1, 64 * 256);
  for (uint32_t r = 0; r < 8; ++r) Insert(text.substr(0, (r + 1) * 8 * 256), r);
  std::vector<ResidencyIndex::Depth> holders;
  index_.Locate(Key(text), path_);
  index_.Holders(path_, 100, holders);
  ASSERT_EQ(holders.size(), 8u);
  std::map<uint32_t, uint32_t> depth;
  for (const auto& h : holders) depth[h.replica] = h.blocks;
  for (uint32_t r = 0; r < 8; ++r) EXPECT_EQ(depth[r], (r + 1) * 8);
  EXPECT_EQ(holders.front().replica, 7u);
}

// Many clients send back another answer than they got (stripped, without its reasoning, made up).
TEST_F(Index, Continues_AnswerComesBackChanged_IsANextTurnAllTheSame) {
  const std::string head = Text(1, 1000);
  for (const size_t answer : {size_t{15}, size_t{300}, size_t{40'000}}) {
    const std::string asked = head + Text(answer, 2000);
    const PromptKey key = Key(asked);
    index_.Insert({.prompt = &key, .continuation = Text(3, answer)}, 0);
    index_.CheckIntegrity();
    const auto continues = [&](const std::string& text) {
      const PromptKey next = Key(text);
      index_.Locate(next, path_);
      return index_.Continues(path_, next, 0);
    };
    EXPECT_TRUE(continues(asked + Text(3, answer) + Text(4, 700))) << answer;
    EXPECT_TRUE(continues(asked + Text(5, 900))) << answer;
    EXPECT_FALSE(continues(asked.substr(0, 1500) + Text(6, 900))) << answer;
    EXPECT_FALSE(continues(head + Text(7, 900))) << answer;
  }
}

// Engines keep whole blocks of theirs: a next turn may leave the known prompt up to one of them before its
// end.
TEST_F(Index, Continues_LeavesWithinTheSlack_IsANextTurn) {
  const std::string asked = Text(1, 12 * 256);
  Insert(asked, 0);
  const auto continues = [&](size_t blocks, uint32_t slack) {
    const std::string text = asked.substr(0, blocks * 256) + Text(2, 900);
    const PromptKey next = Key(text);
    index_.Locate(next, path_);
    return index_.Continues(path_, next, slack);
  };
  EXPECT_FALSE(continues(8, 0));
  EXPECT_TRUE(continues(8, 4));
  EXPECT_FALSE(continues(6, 4));
  EXPECT_TRUE(continues(12, 0));
}

// POL-17: blocks are a chain, so text that was seen at another place is no match.
TEST_F(Index, POL_17_TextMidPrompt_IsNoMatch) {
  const std::string t1 = Text(1, 512), t2 = Text(2, 512);
  Insert(t1, 1);
  Insert(t2, 2);
  EXPECT_EQ(Depth(t2 + " " + t1, 2), 2u);
  EXPECT_EQ(Depth(t2 + " " + t1, 1), 0u);
  // The case's own texts are shorter than a block: matched to the mark all the same.
  const std::string a = "What a Good Day!!!!", b = "Not a bad day today!", ab = b + " " + a;
  const PromptKey ka = Key(a), kb = Key(b);
  const std::vector<uint32_t> ends_a = EndsEvery(8, a.size()), ends_b = EndsEvery(8, b.size());
  index_.Insert({.prompt = &ka, .token_ends = ends_a}, 1);
  index_.Insert({.prompt = &kb, .token_ends = ends_b}, 2);
  EXPECT_EQ(Resolve(ab, 2).bytes, 16);
  EXPECT_EQ(Resolve(ab, 1).bytes, 0);
}

// POL-21: model, adapter and tenant salt are name spaces of their own.
TEST_F(Index, POL_21_OtherIdentity_NeverMatches) {
  const std::string text = Text(1, 8000);
  const PromptKey plain = Key(text, "B");
  index_.Insert({.prompt = &plain}, 0);
  for (const PromptKey& other :
       {Key(text, "A"), Key(text, "B", "x"), Key(text, "B", "y"), Key(text, "B", {}, "salt")}) {
    index_.Locate(other, path_);
    EXPECT_EQ(index_.DepthOf(path_, 0), 0u);
    EXPECT_EQ(index_.Resolve(path_, other, 0).bytes, 0);
  }
  index_.Locate(plain, path_);
  EXPECT_EQ(index_.DepthOf(path_, 0), 31u);
}

TEST_F(Index, Resolve_DivergenceAtAnyByte_EqualsTheEndsBeforeIt) {
  const std::string text = Text(1, 3000);
  const std::vector<uint32_t> ends = EndsEvery(53, text.size());
  const PromptKey key = Key(text);
  index_.Insert({.prompt = &key, .token_ends = ends}, 0);
  for (size_t at = 0; at < 3000; at += 7) {
    std::string other = text;
    other[at] = '#';
    const Residency found = Resolve(other, 0);
    EXPECT_EQ(found.token_blocks, static_cast<int64_t>(at / 53)) << at;
    EXPECT_TRUE(found.exact || found.bytes == 0);
  }
}

TEST_F(Index, Resolve_EqualPromptEndingOnABlock_LosesTheLast) {
  for (const size_t size : {size_t{530}, size_t{1024}, size_t{100}}) {
    const std::string text = Text(size, size);
    const uint32_t step = size == 530 ? 53 : size == 1024 ? 64 : 50;
    const std::vector<uint32_t> ends = EndsEvery(step, size);
    const PromptKey key = Key(text);
    index_.Insert({.prompt = &key, .token_ends = ends}, 0);
    EXPECT_EQ(Resolve(text, 0).token_blocks, static_cast<int64_t>(size / step) - 1);
    EXPECT_EQ(Resolve(text + "x", 0).token_blocks, static_cast<int64_t>(size / step));
    EXPECT_EQ(Resolve(text.substr(0, size - 1), 0).token_blocks, static_cast<int64_t>(size / step) - 1);
  }
}

TEST_F(Index, Drop_OneReplica_LeavesTheOthers) {
  const std::string text = Text(1, 100 * 256);
  Insert(text, 0);
  Insert(text, 1);
  index_.Drop(0);
  index_.CheckIntegrity();
  EXPECT_EQ(Depth(text, 0), 0u);
  EXPECT_EQ(Depth(text, 1), 100u);
  index_.Drop(1);
  EXPECT_EQ(index_.block_count(), 0u);
  EXPECT_EQ(index_.held_bytes(1), 0);
}

TEST_F(Index, Memory_DistinctPromptsOf32KB_AtMost8KBEach) {
  ResidencyIndex index(int64_t{256} << 20);
  const int64_t empty = index.memory_bytes();
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string text = Text(i, 32768);
    const PromptKey key = Key(text);
    const std::vector<uint32_t> ends = EndsEvery(64, text.size());
    index.Insert({.prompt = &key, .token_ends = ends}, i % 8);
  }
  const double per_prompt = static_cast<double>(index.memory_bytes() - empty) / 2000;
  const double slots = 128 * 8 / 0.75;
  RecordProperty("bytes_per_prompt", std::to_string(per_prompt + slots));
  EXPECT_LT(per_prompt + slots, 8192);
}

TEST_F(Index, Memory_FurtherReplica_CostsPerNodeNotPerBlock) {
  const std::string text = Text(1, 1 << 20);
  Insert(text, 0);
  const int64_t one = index_.memory_bytes();
  for (uint32_t r = 1; r <= 10; ++r) Insert(text, r);
  EXPECT_LT((index_.memory_bytes() - one) / 10.0 / 4096, 27.0);
}

TEST_F(Index, Memory_FarMoreThanFits_BoundHoldsAfterEachInsert) {
  ResidencyIndex index(1 << 20);
  Random random(7);
  for (uint64_t i = 0; i < 4000; ++i) {
    const std::string text = Text(i % 50, 500) + Text(1000 + i, random.Below(20000));
    const PromptKey key = Key(text, "m", {}, i % 3 == 0 ? std::to_string(i) : "");
    index.Insert({.prompt = &key}, static_cast<uint32_t>(random.Below(5)));
    ASSERT_LE(index.memory_bytes(), index.max_bytes()) << i;
  }
  index.CheckIntegrity();
  EXPECT_GT(index.block_count(), 2000u);
}

TEST_F(Index, Insert_LargerThanTheBound_IsLeftOut) {
  ResidencyIndex index(1 << 18);
  const std::string text = Text(1, 8 << 20);
  const PromptKey key = Key(text);
  index.Insert({.prompt = &key}, 0);
  EXPECT_LE(index.memory_bytes(), index.max_bytes());
  index.CheckIntegrity();
}

// Naive model: per replica a list of block prefixes, most recent first; the engine's LRU with leaves before
// parents.
class NaiveCache {
 public:
  explicit NaiveCache(size_t capacity_blocks) : capacity_(capacity_blocks) {}
  void Insert(const std::string& text) {
    for (size_t blocks = text.size() / 256; blocks > 0; --blocks) Touch(text.substr(0, blocks * 256));
    while (order_.size() > capacity_) order_.pop_back();
  }
  uint32_t Depth(const std::string& text) const {
    uint32_t depth = 0;
    while ((depth + 1) * 256 <= text.size() && Has(text.substr(0, (depth + 1) * 256))) ++depth;
    return depth;
  }

 private:
  bool Has(const std::string& prefix) const {
    return std::find(order_.begin(), order_.end(), prefix) != order_.end();
  }
  void Touch(const std::string& prefix) {
    order_.remove(prefix);
    order_.push_front(prefix);
  }
  size_t capacity_;
  std::list<std::string> order_;
};

TEST_F(Index, Capacity_RandomInsertsAndEvictions_EqualTheNaiveLru) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    ResidencyIndex index(kRoomy);
    Random random(seed);
    std::vector<NaiveCache> naive(3, NaiveCache(24));
    for (uint32_t r = 0; r < 3; ++r) index.SetCapacity(r, 24 * 256);
    std::vector<std::string> texts;
    for (int i = 0; i < 600; ++i) {
      std::string text = texts.empty() || random.Below(4) == 0 ? "" : texts[random.Below(texts.size())];
      text = text.substr(0, random.Below(text.size() / 256 + 1) * 256) +
             Text(random.Next(), 256 * random.Below(4));
      if (text.size() > 20 * 256) text.resize(20 * 256);
      texts.push_back(text);
      const auto replica = static_cast<uint32_t>(random.Below(3));
      const PromptKey key = Key(text);
      index.Insert({.prompt = &key}, replica);
      naive[replica].Insert(text);
      index.CheckIntegrity();
      const std::string& asked = texts[random.Below(texts.size())];
      const PromptKey asked_key = Key(asked);
      ResidencyPath path;
      index.Locate(asked_key, path);
      for (uint32_t r = 0; r < 3; ++r)
        ASSERT_EQ(index.DepthOf(path, r), naive[r].Depth(asked)) << seed << " " << i;
    }
  }
}

// Arbitrary lengths, marks, drops and a tight memory bound: nothing to compare with but its own recount.
TEST_F(Index, Fuzz_AnyOperations_StaysSound) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Random random(seed);
    ResidencyIndex index(seed % 2 == 0 ? 300'000 : kRoomy);
    std::vector<std::string> texts{""};
    for (int i = 0; i < 2000; ++i) {
      std::string text = texts[random.Below(texts.size())];
      text.resize(random.Below(text.size() + 1));
      text += Text(random.Below(3) == 0 ? random.Below(4) : random.Next(), random.Below(2000));
      if (text.size() > 60'000) text.resize(1000);
      texts.push_back(text);
      const std::string more = Text(random.Next(), random.Below(700));
      const PromptKey key = Key(text);
      const auto ends =
          EndsEvery(static_cast<uint32_t>(20 + random.Below(3) * 20), text.size() + more.size());
      const auto replica = static_cast<uint32_t>(random.Below(6));
      switch (random.Below(8)) {
        case 0:
          index.Drop(replica);
          break;
        case 1:
          index.SetCapacity(replica, static_cast<int64_t>(random.Below(100'000)));
          break;
        case 2:
        case 3:
          index.Insert({.prompt = &key}, replica);
          break;
        case 4:
          index.Insert({.prompt = &key, .token_ends = ends}, replica);
          break;
        default:
          index.Insert({.prompt = &key, .continuation = more, .token_ends = ends}, replica);
      }
      ASSERT_LE(index.memory_bytes(), index.max_bytes());
      if (i % 8 == 0) index.CheckIntegrity();
    }
    for (uint32_t r = 0; r < 6; ++r) index.Drop(r);
    index.CheckIntegrity();
    EXPECT_EQ(index.block_count(), 0u);
  }
}

}  // namespace
}  // namespace kvring::router
