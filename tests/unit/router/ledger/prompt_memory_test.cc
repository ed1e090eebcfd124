#include "router/ledger/prompt_memory.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "router/ledger/prefix_history.h"

namespace kvring::router {
namespace {

std::string Noise(uint64_t seed, size_t bytes) {
  Random random(seed);
  std::string text;
  while (text.size() < bytes) {
    for (uint64_t letters = 2 + random.Below(7); letters > 0; --letters)
      text += static_cast<char>('a' + random.Below(26));
    text += ' ';
  }
  return text;
}

TEST(PromptMemory, Conversation_IsKeptOnceAndFoundWhole) {
  PromptMemory memory(1 << 20);
  std::string prompt = Noise(1, 4000);
  for (uint64_t turn = 0; turn < 10; ++turn) {
    memory.Add(prompt);
    const std::string next = prompt + Noise(100 + turn, 500);
    const auto match = memory.Find(next);
    EXPECT_EQ(match.equal_bytes, prompt.size());
    EXPECT_FALSE(match.divergence);
    prompt = next;
  }
  EXPECT_EQ(memory.prompts(), 1u);
}

TEST(PromptMemory, BrokenFront_IsFoundByWhatStandsBehind) {
  PromptMemory memory(1 << 20);
  for (uint64_t i = 0; i < 20; ++i) memory.Add("id 12:00:0" + std::to_string(i % 10) + " " + Noise(i, 5000));
  const auto match = memory.Find("id 13:37:59 " + Noise(7, 5000) + "and more");
  ASSERT_TRUE(match.divergence);
  EXPECT_EQ(match.divergence->cause, DivergenceClass::kTimestamp);
  EXPECT_GT(match.divergence->what_if_bytes, 4990u);
  EXPECT_EQ(match.equal_bytes, 4u);
}

TEST(PromptMemory, Full_ForgetsTheOldestAndStaysWithinItsBytes) {
  PromptMemory memory(100'000);
  for (uint64_t i = 0; i < 50; ++i) {
    memory.Add(Noise(i, 5000));
    EXPECT_LE(memory.bytes(), 100'000u);
  }
  EXPECT_EQ(memory.Find(Noise(0, 5000)).equal_bytes, 0u);
  EXPECT_EQ(memory.Find(Noise(49, 5000)).equal_bytes, Noise(49, 5000).size());
  memory.Add(Noise(99, 60'000));
  EXPECT_EQ(memory.Find(Noise(99, 60'000)).equal_bytes, 0u) << "too large to be kept";
}

TEST(PromptMemory, RandomPrompts_LongestStartIsThatOfAPlainSearch) {
  Random random(5);
  PromptMemory memory(1 << 22);
  std::vector<std::string> all;
  for (int i = 0; i < 300; ++i) {
    std::string prompt = all.empty() || random.Below(4) == 0
                             ? Noise(random.Next(), 800)
                             : all[random.Below(all.size())].substr(0, 64 * random.Below(12));
    prompt += Noise(random.Next(), 10 + random.Below(600));
    size_t longest = 0;
    for (const std::string& other : all)
      longest = std::max<size_t>(
          longest,
          std::mismatch(other.begin(), other.end(), prompt.begin(), prompt.end()).first - other.begin());
    const size_t found = memory.Find(prompt).equal_bytes;
    EXPECT_LE(found, longest);
    EXPECT_GE(found, longest / 64 * 64);
    memory.Add(prompt);
    all.push_back(std::move(prompt));
  }
}

TEST(PrefixHistory, CountsWholeBlocksUnderTheSameRoot) {
  PrefixHistory history(1000);
  const BlockHash root = ChainRoot({.model = "m"});
  const std::string prompt = Noise(1, 1000);
  EXPECT_EQ(history.SeenThenAdd(root, prompt), 0u);
  EXPECT_EQ(history.SeenThenAdd(root, prompt.substr(0, 500) + Noise(2, 500)), 448u);
  EXPECT_EQ(history.SeenThenAdd(ChainRoot({.model = "other"}), prompt), 0u);
  EXPECT_FALSE(history.forgotten());
}

TEST(PrefixHistory, Full_ForgetsWhatWasNotSeenOfLateAndSaysSo) {
  PrefixHistory history(100);
  const BlockHash root = ChainRoot({});
  const std::string hot = Noise(1, 640);
  history.SeenThenAdd(root, hot);
  for (uint64_t i = 10; i < 100; ++i) {
    history.SeenThenAdd(root, Noise(i, 640));
    EXPECT_GE(history.SeenThenAdd(root, hot), 640u) << i;
  }
  EXPECT_EQ(history.SeenThenAdd(root, Noise(10, 640)), 0u);
  EXPECT_TRUE(history.forgotten());
}

}  // namespace
}  // namespace kvring::router
