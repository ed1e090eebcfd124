#include "router/ledger/matched_runs.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "router/ledger/content_chunks.h"
#include "router/ledger/prompt_place.h"

namespace kvring::router {
namespace {

std::string Noise(uint64_t seed, size_t bytes) {
  Random random(seed);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>('a' + random.Below(26));
  return text;
}

TEST(ContentChunks, CoverTheTextAndFindThemselvesBehindAnInsertion) {
  const std::string text = Noise(1, 20'000);
  const auto chunks = ContentChunks(text, 0, std::string::npos);
  size_t at = 0;
  for (const ContentChunk& chunk : chunks) {
    EXPECT_EQ(chunk.begin, at);
    EXPECT_LE(chunk.length, kMaxChunkBytes);
    at += chunk.length;
  }
  EXPECT_EQ(at, text.size());
  const auto shifted = ContentChunks("something new" + text, 0, std::string::npos);
  size_t known = 0;
  for (const ContentChunk& x : shifted)
    for (const ContentChunk& y : chunks) known += x.hash == y.hash ? x.length : 0;
  EXPECT_GT(known, text.size() * 9 / 10);
}

TEST(MatchedRuns, ValuesBetweenStableTexts_AreSkipped) {
  const std::string x = Noise(1, 500), y = Noise(2, 500), z = Noise(3, 500);
  const std::string a = "1" + x + "22" + y + "3" + z;
  const std::string b = "7" + x + "8" + y + "999" + z;
  const auto runs = MatchedRuns(a, 0, b, 0);
  ASSERT_EQ(runs.size(), 3u);
  for (const MatchedRun& run : runs) EXPECT_EQ(a.substr(run.a, run.length), b.substr(run.b, run.length));
  EXPECT_EQ(TotalLength(runs), 1500u);
}

TEST(MatchedRuns, LongTextBefore_AndTextsThatMoved_AreFound) {
  const std::string x = Noise(1, 3000), y = Noise(2, 3000);
  EXPECT_EQ(TotalLength(MatchedRuns(Noise(8, 900) + x, 0, Noise(9, 2000) + x, 0)), x.size());
  const auto moved = MatchedRuns(x + y, 0, y + x, 0);
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(TotalLength(moved), x.size() + y.size());
}

TEST(MatchedRuns, NothingInCommon_IsEmpty) {
  EXPECT_TRUE(MatchedRuns(Noise(1, 5000), 0, Noise(2, 5000), 0).empty());
  EXPECT_TRUE(MatchedRuns("short", 0, "short", 0).empty());
}

TEST(PromptPlace, Offsets_HaveTheirRecords) {
  const std::string_view prompt =
      "[{}]\x1Esystem\x1F"
      "Be brief.\x1Euser\x1FHi\x1E";
  EXPECT_EQ(PlaceAt(prompt, 0).part, PromptPart::kTools);
  EXPECT_EQ(PlaceAt(prompt, 4).part, PromptPart::kTools);
  const PromptPlace system = PlaceAt(prompt, 5);
  EXPECT_EQ(system.part, PromptPart::kSystem);
  EXPECT_EQ(system.message, 0);
  EXPECT_EQ(prompt.substr(system.content_begin, 9), "Be brief.");
  EXPECT_EQ(PlaceAt(prompt, prompt.size() - 1).part, PromptPart::kUser);
  EXPECT_EQ(PlaceAt(prompt, prompt.size() - 1).message, 1);
  EXPECT_EQ(LeadingEnd(prompt), prompt.find("user"));
  EXPECT_EQ(PlaceAt("no chat", 3).part, PromptPart::kText);
  EXPECT_EQ(LeadingEnd("no chat"), 0u);
}

}  // namespace
}  // namespace kvring::router
