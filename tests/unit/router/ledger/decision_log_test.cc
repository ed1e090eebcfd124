#include "router/ledger/decision_log.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kvring::router {
namespace {

TEST(DecisionLog, Ring_KeepsTheLastAndForgetsTheRest) {
  DecisionLog log(3);
  for (uint64_t i = 1; i <= 5; ++i) {
    const uint64_t story = log.Open(RequestId{i}, "name-" + std::to_string(i));
    log.Close(
        story,
        {.reason = Reason::kPrefix, .prompt_tokens = 10, .cached_tokens = 4, .predicted_cached_tokens = 5});
  }
  EXPECT_FALSE(log.Find("2"));
  EXPECT_FALSE(log.Find("name-2"));
  ASSERT_TRUE(log.Find("name-4"));
  EXPECT_EQ(log.Find("4")->id, RequestId{4});
  EXPECT_TRUE(log.Find("5")->complete);
  const auto recent = log.Recent(10);
  ASSERT_EQ(recent.size(), 3u);
  EXPECT_EQ(recent[0].id, RequestId{5});
  EXPECT_EQ(recent[2].id, RequestId{3});
  EXPECT_EQ(log.Recent(1).size(), 1u);
  EXPECT_EQ(log.totals().requests, 5u);
  EXPECT_EQ(log.totals().cached_tokens, 20u);
  EXPECT_EQ(log.totals().predicted_cached_tokens, 25u);
}

TEST(DecisionLog, OBS_06_OutcomeClasses_AddUpToRequests) {
  DecisionLog log(10);
  for (int i = 0; i < 80; ++i) {
    const uint64_t story = log.Open(RequestId{static_cast<uint64_t>(i)}, "");
    log.Close(story, {.outcome = static_cast<OutcomeClass>(i % kOutcomeClasses)});
  }
  const auto& outcomes = log.totals().outcomes;
  EXPECT_EQ(std::accumulate(outcomes.begin(), outcomes.end(), uint64_t{0}), log.totals().requests);
  for (const uint64_t count : outcomes) EXPECT_EQ(count, 10u);
}

TEST(DecisionLog, CachedNotTold_IsNotCountedAsZeroOfPredicted) {
  DecisionLog log(10);
  log.Close(log.Open(RequestId{1}, ""),
            {.prompt_tokens = 100, .cached_tokens = -1, .predicted_cached_tokens = 50});
  EXPECT_EQ(log.totals().predicted_cached_tokens, 0u);
  EXPECT_EQ(log.totals().cached_tokens, 0u);
}

TEST(DecisionLog, NameTakenTwice_FindsTheLatest) {
  DecisionLog log(2);
  log.Open(RequestId{1}, "x");
  log.Open(RequestId{2}, "x");
  EXPECT_EQ(log.Find("x")->id, RequestId{2});
  log.Open(RequestId{3}, "");  // overwrites 1, whose name now belongs to 2
  EXPECT_EQ(log.Find("x")->id, RequestId{2});
}

TEST(DecisionLog, ClosedAfterItWasOverwritten_StillCounts) {
  DecisionLog log(1);
  const uint64_t story = log.Open(RequestId{1}, "");
  log.Open(RequestId{2}, "");
  EXPECT_EQ(log.Edit(story), nullptr);
  log.Close(story, {.prompt_tokens = 7});
  EXPECT_EQ(log.totals().prompt_tokens, 7u);
  EXPECT_FALSE(log.Find("2")->complete);
}

}  // namespace
}  // namespace kvring::router
