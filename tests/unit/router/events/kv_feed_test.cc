// The order of one engine's events: gaps, replays, restarts, what hangs on the unknown.
#include "router/events/kv_feed.h"

#include <gtest/gtest.h>

#include "tests/unit/router/events/kv_messages.h"

namespace kvring::router {
namespace {

class KvFeedTest : public KvEventsTest {
 protected:
  KvFeed feed_{Access(), "http://a:1"};
};

TEST_F(KvFeedTest, StoredAndRemoved_ATokenPromptIsPredictedToTheBlock) {
  feed_.OnPublished(0, Stored({1, 2}, std::nullopt, Tokens(0, 32)));
  EXPECT_EQ(Predicted(Tokens(0, 40)), 32);
  EXPECT_EQ(Predicted(Tokens(0, 32)), 16);  // the last token is computed anew
  feed_.OnPublished(1, Stored({3}, 2, Tokens(32, 16)));
  EXPECT_EQ(Predicted(Tokens(0, 60)), 48);
  feed_.OnPublished(2, Removed({3, 2}));
  EXPECT_EQ(Predicted(Tokens(0, 60)), 16);
  feed_.OnPublished(3, Cleared());
  EXPECT_EQ(Predicted(Tokens(0, 60)), 0);
  EXPECT_EQ(View().events.state, EventsState::kWhole);
}

TEST_F(KvFeedTest, PFX_12_Gap_IsAskedForFromTheFirstMissing_AndHealsByTheReplay) {
  feed_.OnPublished(0, Stored({1, 2}, std::nullopt, Tokens(0, 32)));
  EXPECT_EQ(feed_.OnPublished(2, Stored({9}, std::nullopt, Tokens(500, 16))), 1u);
  EXPECT_EQ(View().events.state, EventsState::kMissing);
  EXPECT_EQ(Predicted(Tokens(0, 40)), 0);
  EXPECT_EQ(feed_.OnPublished(3, Cleared()), std::nullopt);  // left to the replay
  feed_.OnReplayed(1, Removed({2}));
  feed_.OnReplayed(2, Stored({9}, std::nullopt, Tokens(500, 16)));
  feed_.OnReplayEnd();
  EXPECT_EQ(Predicted(Tokens(0, 40)), 16);
  EXPECT_EQ(feed_.OnPublished(4, Cleared()), 3u);  // 3 came while the replay ran
  feed_.OnReplayed(3, Cleared());
  feed_.OnReplayed(4, Cleared());
  feed_.OnReplayEnd();
  EXPECT_EQ(Predicted(Tokens(0, 40)), 0);
  EXPECT_EQ(View().events.state, EventsState::kWhole);
  EXPECT_EQ(View().events.gaps, 2u);
}

TEST_F(KvFeedTest, PFX_11_RouterStartsLate_UnknownParent_TheReplayGivesAllOfIt) {
  const auto b3 = Stored({3}, 2, Tokens(32, 16));
  EXPECT_EQ(feed_.OnPublished(2, b3), 0u);
  EXPECT_EQ(Predicted(Tokens(0, 60)), 0);
  feed_.OnReplayed(0, Stored({1}, std::nullopt, Tokens(0, 16)));
  feed_.OnReplayed(1, Stored({2}, 1, Tokens(16, 16)));
  feed_.OnReplayed(2, b3);
  feed_.OnReplayEnd();
  EXPECT_EQ(Predicted(Tokens(0, 60)), 48);
  EXPECT_EQ(View().events.state, EventsState::kWhole);
}

TEST_F(KvFeedTest, ReplayWithoutTheBeginning_GoesOnWithWhatIsSure_AndSaysSo) {
  EXPECT_EQ(feed_.OnPublished(100, Stored({3}, 2, Tokens(32, 16))), 0u);
  feed_.OnReplayed(90, Stored({5}, std::nullopt, Tokens(900, 16)));
  feed_.OnReplayed(91, Stored({7}, 6, Tokens(700, 16)));  // hangs on what left the buffer
  feed_.OnReplayEnd();
  EXPECT_EQ(View().events.state, EventsState::kPartial);
  EXPECT_EQ(Predicted(Tokens(900, 40)), 16);
  EXPECT_EQ(Predicted(Tokens(0, 60)), 0);
}

TEST_F(KvFeedTest, NobodyRepeats_TheNextMessageBeginsAnew) {
  feed_.OnPublished(0, Stored({1}, std::nullopt, Tokens(0, 16)));
  EXPECT_TRUE(feed_.OnPublished(5, Cleared()));
  feed_.GiveUp();
  EXPECT_EQ(feed_.OnPublished(6, Stored({2}, std::nullopt, Tokens(300, 16))), std::nullopt);
  EXPECT_EQ(Predicted(Tokens(0, 40)), 0);
  EXPECT_EQ(Predicted(Tokens(300, 40)), 16);
  EXPECT_EQ(View().events.state, EventsState::kPartial);
}

TEST_F(KvFeedTest, EngineStartsAgain_NothingOfItsFormerLifeIsBelieved) {
  feed_.OnPublished(0, Stored({1}, std::nullopt, Tokens(0, 16)));
  feed_.OnPublished(1, Stored({2}, 1, Tokens(16, 16)));
  feed_.OnPublished(0, Stored({1}, std::nullopt, Tokens(300, 16)));
  EXPECT_EQ(Predicted(Tokens(0, 60)), 0);
  EXPECT_EQ(Predicted(Tokens(300, 40)), 16);
  EXPECT_EQ(feed_.OnPublished(1, Stored({2}, 1, Tokens(316, 16))), std::nullopt);
  EXPECT_EQ(Predicted(Tokens(300, 40)), 32);
}

TEST_F(KvFeedTest, Unreadable_IsMissingFromThenOn) {
  feed_.OnPublished(0, Stored({1}, std::nullopt, Tokens(0, 16)));
  EXPECT_EQ(feed_.OnPublished(1, "nonsense"), std::nullopt);
  EXPECT_EQ(feed_.unreadable(), 1u);
  EXPECT_EQ(feed_.OnPublished(2, Cleared()), 1u);
}

TEST_F(KvFeedTest, PFX_14_UnitOfSixtyFour_IsAllOrNothing) {
  feed_.OnPublished(0, Stored({1}, std::nullopt, Tokens(0, 64), 64));
  for (const size_t shared : {16, 32, 48, 64}) {
    std::vector<TokenId> prompt = Tokens(0, shared);
    prompt.resize(shared + 30, 77);
    EXPECT_EQ(Predicted(prompt), shared == 64 ? 64 : 0);
  }
}

}  // namespace
}  // namespace kvring::router
