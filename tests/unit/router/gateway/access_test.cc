#include "router/gateway/access.h"

#include <gtest/gtest.h>

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(KeyLimiter, RequestsPerMinute_ABurstOfAMinute_ThenAtTheRate) {
  KeyLimiter limiter({.requests_per_minute = 60});
  Instant now{0};
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(limiter.Begin(now));
  EXPECT_EQ(limiter.Begin(now), Duration(seconds(1)));
  now = now + milliseconds(1100);
  EXPECT_FALSE(limiter.Begin(now));
  EXPECT_TRUE(limiter.Begin(now));
  now = now + seconds(3600);
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(limiter.Begin(now));
  EXPECT_TRUE(limiter.Begin(now));
}

TEST(KeyLimiter, Tokens_AreChargedAtTheEnd_DebtIsWaitedFor) {
  KeyLimiter limiter({.tokens_per_minute = 600});
  Instant now{0};
  ASSERT_FALSE(limiter.Begin(now));
  ASSERT_FALSE(limiter.Begin(now));  // nothing is known of the first yet
  limiter.End(500);
  limiter.End(400);
  EXPECT_EQ(limiter.Begin(now)->count() / 1'000'000, 30'100);  // 301 tokens at 10 a second
  EXPECT_TRUE(limiter.Begin(now + seconds(29)));
  EXPECT_FALSE(limiter.Begin(now + seconds(31)));
}

TEST(KeyLimiter, InFlight_EndsGiveThePlaceBack) {
  KeyLimiter limiter({.max_in_flight = 2});
  const Instant now{0};
  EXPECT_FALSE(limiter.Begin(now));
  EXPECT_FALSE(limiter.Begin(now));
  EXPECT_TRUE(limiter.Begin(now));
  limiter.End(1'000'000);
  EXPECT_FALSE(limiter.Begin(now));
}

TEST(Access, Bearer_OnlyTheWholeKey) {
  Access access({.keys = {{.name = "a", .key = "K1"}, {.name = "b", .key = "K2"}}});
  const auto view = access.view();
  EXPECT_FALSE(view->open());
  EXPECT_EQ(view->FindBearer("Bearer K2")->name(), "b");
  EXPECT_EQ(view->FindBearer("bearer K1")->name(), "a");
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer K", "Bearer K11", "Basic K1", "K1"})
    EXPECT_EQ(view->FindBearer(wrong), nullptr) << wrong;
  EXPECT_TRUE(Access().view()->open());
}

TEST(Access, Replace_AKeyThatStays_KeepsWhatItUsed_AndTakesItsNewLimits) {
  AccessRules rules{.keys = {{.name = "a", .key = "K1", .limits = {.max_in_flight = 1}}}};
  Access access(rules);
  const auto before = access.view()->Find("K1");
  EXPECT_FALSE(before->Begin({0}));
  access.Replace(rules);
  EXPECT_TRUE(access.view()->Find("K1")->Begin({0}));
  rules.keys[0].limits.max_in_flight = 2;
  access.Replace(rules);
  EXPECT_FALSE(access.view()->Find("K1")->Begin({0}));
  rules.keys[0].key = "K9";
  access.Replace(rules);
  EXPECT_EQ(access.view()->Find("K1"), nullptr);
  EXPECT_FALSE(access.view()->Find("K9")->Begin({0}));
  before->End(3);  // a request of the old key ends
}

TEST(Access, Salt_FollowsFromTheKeyAlone_AndOnlyWhereIsolated) {
  const auto salt = [](const char* key, bool isolate) {
    return Access({.keys = {{.name = "n", .key = key, .isolate = isolate}}}).view()->Find(key)->salt();
  };
  EXPECT_EQ(salt("K1", false), "");
  EXPECT_EQ(salt("K1", true).size(), 32u);
  EXPECT_EQ(salt("K1", true), salt("K1", true));
  EXPECT_NE(salt("K1", true), salt("K2", true));
  EXPECT_EQ(salt("K1", true).find("K1"), std::string::npos);
}

TEST(Access, ReplicaKeyOfAMemberAddedByHand_StaysOverReplace) {
  Access access;
  access.SetReplicaKey("http://a", "k");
  access.Replace({.replica_keys = {{"http://b", "x"}}});
  EXPECT_EQ(access.view()->replica_keys.at("http://a"), "k");
  access.Replace({.replica_keys = {{"http://a", "y"}}});
  EXPECT_EQ(access.view()->replica_keys.at("http://a"), "y");
}

}  // namespace
}  // namespace kvring::router
