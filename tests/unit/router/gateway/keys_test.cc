// API keys on the HTTP front: limits, caches of their own, changes while it runs.
#include <gtest/gtest.h>

#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/gateway_fixture.h"

namespace kvring::router {
namespace {

using test::RawSocket;
using Request = test::ScriptedUpstream::Request;

class KeysTest : public testing::Test {
 protected:
  void Start(AccessRules rules) {
    options_.access->Replace(std::move(rules));
    fixture_ = std::make_unique<GatewayFixture>(options_);
    fixture_->Add(upstream_.url());
    fixture_->Start();
  }
  Answer Ask(const std::string& key, const std::string& body = ChatBody(false)) {
    RawSocket client = fixture_->Connect();
    client.Send(PostBody(body, "Authorization: Bearer " + key + "\r\n"));
    return ReadAnswer(client);
  }

  test::ScriptedUpstream upstream_{[](RawSocket& socket, const Request&) {
    socket.Send(test::Json(200, R"({"choices":[],"usage":{"prompt_tokens":60,"completion_tokens":40}})"));
  }};
  GatewayOptions options_;
  std::unique_ptr<GatewayFixture> fixture_;
};

TEST_F(KeysTest, Limits_BeyondThem429_WithRetryAfterAndReason_OtherKeysGoOn) {
  Start({.keys = {{.name = "small", .key = "S", .limits = {.requests_per_minute = 2}},
                  {.name = "tokens", .key = "T", .limits = {.tokens_per_minute = 150}},
                  {.name = "free", .key = "F"}}});
  EXPECT_EQ(Ask("S").status(), 200);
  EXPECT_EQ(Ask("S").status(), 200);
  const Answer limited = Ask("S");
  EXPECT_EQ(limited.status(), 429);
  EXPECT_TRUE(limited.Names("Retry-After"));
  EXPECT_TRUE(limited.Has("x-kvring-reason: limit"));
  EXPECT_NE(limited.body.find("\"code\":\"limit\""), std::string::npos) << limited.body;
  EXPECT_EQ(Ask("T").status(), 200);
  EXPECT_EQ(Ask("T").status(), 200);
  EXPECT_EQ(Ask("T").status(), 429);
  EXPECT_EQ(Ask("F").status(), 200);
  EXPECT_EQ(Ask("X").status(), 401);
  EXPECT_EQ(upstream_.count(), 5);
  EXPECT_EQ(fixture_->Count("kvring_key_limited_total"), 2u);
  EXPECT_EQ(fixture_->Outcomes(OutcomeClass::kRefused), 2u);
}

TEST_F(KeysTest, Isolated_SaltIsTheKeys_WhateverTheClientSends_OtherBytesStay) {
  Start({.keys = {{.name = "alone", .key = "A", .isolate = true}, {.name = "shared", .key = "B"}}});
  const std::string plain = R"({ "model":"m", "messages":[{"role":"user","content":"hi"}],"seed":1e2})";
  const std::string salted =
      R"({"cache_salt":"mine","model":"m","messages":[{"role":"user","content":"hi"}]})";
  ASSERT_EQ(Ask("A", plain).status(), 200);
  const std::string salt = options_.access->view()->Find("A")->salt();
  EXPECT_EQ(upstream_.last().body, absl::StrCat("{\"cache_salt\":\"", salt, "\",", plain.substr(1)));
  ASSERT_EQ(Ask("A", salted).status(), 200);
  EXPECT_EQ(upstream_.last().body,
            absl::StrCat("{\"cache_salt\":\"", salt, "\"", salted.substr(salted.find(",\"model"))));
  ASSERT_EQ(Ask("B", plain).status(), 200);
  EXPECT_EQ(upstream_.last().body, plain);
  ASSERT_EQ(Ask("B", salted).status(), 200);
  EXPECT_EQ(upstream_.last().body, salted);
}

TEST_F(KeysTest, POL_21_SaltsAreNameSpaces_NoPredictionAcrossThem) {
  Start({.keys = {{.name = "a", .key = "A", .isolate = true}, {.name = "b", .key = "B", .isolate = true}}});
  const std::string body = ChatBody(false, std::string(4000, 'x'));
  const auto predicted = [](const Answer& answer) {
    const std::string name = "x-kvring-predicted-cached-tokens: ";
    return std::stoi(answer.head.substr(answer.head.find(name) + name.size()));
  };
  EXPECT_EQ(predicted(Ask("A", body)), 0);
  EXPECT_GT(predicted(Ask("A", body)), 0);
  EXPECT_EQ(predicted(Ask("B", body)), 0);
}

TEST_F(KeysTest, KeysChangedWhileRunning_AreFollowed_ReplicaKeysToo) {
  Start({.keys = {{.name = "a", .key = "A"}}, .replica_keys = {{upstream_.url(), "R1"}}});
  ASSERT_EQ(Ask("A").status(), 200);
  EXPECT_EQ(upstream_.last().Field("Authorization"), "Bearer R1");
  options_.access->Replace({.keys = {{.name = "b", .key = "B"}},
                            .aliases = {{"nick", "m"}},
                            .replica_keys = {{upstream_.url(), "R2"}}});
  ASSERT_TRUE(Eventually([&] { return Ask("B").status() == 200; }));
  EXPECT_EQ(Ask("A").status(), 401);
  EXPECT_TRUE(Eventually([&] {
    Ask("B", R"({"model":"nick","messages":[{"role":"user","content":"hi"}]})");
    return upstream_.last().Field("Authorization") == "Bearer R2";
  }));
  EXPECT_NE(upstream_.last().body.find("\"model\":\"m\""), std::string::npos);
}

}  // namespace
}  // namespace kvring::router
