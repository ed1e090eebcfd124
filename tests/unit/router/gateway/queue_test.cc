// Requests that wait in the gateway until a replica has room; case ids in the names.
#include <gtest/gtest.h>

#include <list>

#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/gateway_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Json;
using test::RawSocket;
using test::ScriptedUpstream;
using Request = ScriptedUpstream::Request;

constexpr std::string_view kGood = R"({"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}})";

// A replica that keeps every request until the test lets one answer go.
class Held {
 public:
  void Answer(RawSocket& socket, const Request&) {
    absl::MutexLock lock(&mutex_);
    const int mine = ++arrived_;
    const auto mine_goes = [&] { return let_go_ >= mine; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&mine_goes), absl::Seconds(20)))
      socket.Send(Json(200, kGood));
  }
  void LetGo(int n) {
    absl::MutexLock lock(&mutex_);
    let_go_ += n;
  }

 private:
  absl::Mutex mutex_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int let_go_ ABSL_GUARDED_BY(mutex_) = 0;
};

class GatewayQueue : public testing::Test {
 protected:
  void Start(const AdmissionRules& admission) {
    GatewayOptions options;
    options.http.threads = 2;  // who makes room and who waits are often on two threads
    options.decision_headers = false;
    fixture_.emplace(options, "round-robin", admission);
    fixture_->Add(upstream_.url());
    fixture_->Start();
  }
  RawSocket& Send() {
    clients_.push_back(fixture_->Connect());
    EXPECT_TRUE(clients_.back().Send(PostChat(false)));
    return clients_.back();
  }
  bool Waiting(size_t n) {
    return Eventually([&] { return fixture_->queue().waiting == n; });
  }
  bool AtReplica(int n) {
    return Eventually([&] { return upstream_.count() == n; });
  }
  void ExpectRefused(RawSocket& client, int status, const std::string& reason) {
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status(), status);
    EXPECT_TRUE(answer.Has("x-kvring-reason: " + reason)) << answer.head;
    const size_t at = answer.head.find("Retry-After: ");
    ASSERT_NE(at, std::string::npos);
    EXPECT_GE(std::stoi(answer.head.substr(at + 13)), 1);
    EXPECT_NE(answer.body.find("\"code\":\"" + reason + "\""), std::string::npos) << answer.body;
  }

  Held held_;
  ScriptedUpstream upstream_{[this](RawSocket& s, const Request& r) { held_.Answer(s, r); }};
  std::optional<GatewayFixture> fixture_;
  std::list<RawSocket> clients_;
};

TEST_F(GatewayQueue, HLT18_FourWait_SurplusIs429_AllWhoWaitedAreServed) {
  Start({.max_in_flight_per_replica = 2, .queue_length = 4});
  std::vector<RawSocket*> served;
  for (int i = 0; i < 2; ++i) served.push_back(&Send());
  ASSERT_TRUE(AtReplica(2));
  for (size_t i = 1; i <= 4; ++i) {
    served.push_back(&Send());
    ASSERT_TRUE(Waiting(i));
  }
  for (int i = 0; i < 4; ++i) ExpectRefused(Send(), 429, "queue_full");
  EXPECT_EQ(upstream_.count(), 2);
  held_.LetGo(100);
  for (RawSocket* client : served) EXPECT_EQ(ReadAnswer(*client).status(), 200);
  EXPECT_EQ(upstream_.count(), 6);
  EXPECT_TRUE(Waiting(0));
  EXPECT_EQ(fixture_->InFlight(), 0);
  EXPECT_EQ(fixture_->queue().served, 4u);
}

TEST_F(GatewayQueue, HLT18_WaitedTooLong_Is429_EmptyPoolIs503) {
  Start({.max_in_flight_per_replica = 1, .queue_length = 4, .queue_timeout = milliseconds(150)});
  RawSocket& first = Send();
  ASSERT_TRUE(AtReplica(1));
  ExpectRefused(Send(), 429, "queue_timeout");
  held_.LetGo(1);
  EXPECT_EQ(ReadAnswer(first).status(), 200);
  fixture_->guard().With([](Router& router) { router.RemoveReplica(router.Replicas(Now())[0].id, Now()); });
  ExpectRefused(Send(), 503, "no_endpoints");
}

TEST_F(GatewayQueue, OBS07_PRX06d_GRP08c_CancelledExpiredRefusedServed_CountedEach) {
  Start({.max_in_flight_per_replica = 1, .queue_length = 15, .queue_timeout = seconds(3)});
  RawSocket& first = Send();
  ASSERT_TRUE(AtReplica(1));
  std::vector<RawSocket*> waiting;
  for (size_t i = 1; i <= 15; ++i) {
    waiting.push_back(&Send());
    ASSERT_TRUE(Waiting(i));
  }
  for (int i = 0; i < 5; ++i) ExpectRefused(Send(), 429, "queue_full");
  for (size_t i = 0; i < 5; ++i) i % 2 == 0 ? waiting[i]->Close() : waiting[i]->Reset();
  ASSERT_TRUE(Waiting(10));
  for (int i = 0; i < 5; ++i) {
    held_.LetGo(1);
    ASSERT_TRUE(AtReplica(i + 2));
  }
  for (size_t i = 10; i < 15; ++i) ExpectRefused(*waiting[i], 429, "queue_timeout");
  held_.LetGo(1);
  EXPECT_EQ(ReadAnswer(first).status(), 200);
  for (size_t i = 5; i < 10; ++i) EXPECT_EQ(ReadAnswer(*waiting[i]).status(), 200);
  EXPECT_EQ(upstream_.count(), 6) << "those who left or were refused never reached it";
  EXPECT_EQ(fixture_->Count("kvring_client_closed_total"), 5u);

  RawSocket scraper = fixture_->Connect();
  ASSERT_TRUE(scraper.Send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"));
  const std::string page = ReadAnswer(scraper).body;
  for (const char* reason : {"served", "cancelled_in_queue", "queue_timeout", "queue_full"})
    EXPECT_NE(page.find(absl::StrCat("kvring_queue_ends_total{reason=\"", reason, "\"} 5\n")),
              std::string::npos)
        << reason << page;
  EXPECT_NE(page.find("kvring_queued_requests 0\n"), std::string::npos) << page;
  EXPECT_EQ(fixture_->InFlight(), 0);
}

TEST(GatewayQueueCooling, HLT19_BusyReplica_NextRequestWaitsAndIsServedThen) {
  ScriptedUpstream busy_once([](RawSocket& socket, const Request& request) {
    socket.Send(request.number == 1 ? Json(503, "{}", "Retry-After: 1\r\n") : Json(200, kGood));
  });
  GatewayFixture fixture({}, "round-robin", {.queue_length = 4});
  fixture.Add(busy_once.url());
  fixture.Start();
  // The first probe tells a new process, whose cooling would be forgotten.
  ASSERT_TRUE(Eventually([&] { return fixture.replicas()[0].epoch.value != 0; }));
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(false)));
  EXPECT_EQ(ReadAnswer(client).status(), 503);
  const Instant begun = Now();
  ASSERT_TRUE(client.Send(PostChat(false)));
  EXPECT_EQ(ReadAnswer(client).status(), 200);
  EXPECT_GE(Now() - begun, milliseconds(700));
  EXPECT_EQ(fixture.queue().served, 1u);
}

TEST(GatewayQueueRetry, FailedAttempt_WaitsForTheOtherReplica) {
  ScriptedUpstream failing([](RawSocket& socket, const Request&) { socket.Close(); });
  Held held;
  ScriptedUpstream full([&](RawSocket& s, const Request& r) { held.Answer(s, r); });
  GatewayFixture fixture({}, "round-robin", {.max_in_flight_per_replica = 1, .queue_length = 4});
  fixture.Add(full.url());
  fixture.Start();
  RawSocket first = fixture.Connect();
  ASSERT_TRUE(first.Send(PostChat(false)));
  ASSERT_TRUE(Eventually([&] { return full.count() == 1; }));
  fixture.Add(failing.url());
  RawSocket second = fixture.Connect();
  ASSERT_TRUE(second.Send(PostChat(false)));
  ASSERT_TRUE(Eventually([&] { return fixture.queue().waiting == 1; }));
  EXPECT_EQ(fixture.Count("kvring_retries_total"), 0u);
  held.LetGo(2);
  EXPECT_EQ(ReadAnswer(first).status(), 200);
  EXPECT_EQ(ReadAnswer(second).status(), 200);
  EXPECT_EQ(fixture.Count("kvring_retries_total"), 1u);
  EXPECT_EQ(full.count(), 2);
}

TEST_F(GatewayQueue, Stop_WithRequestsWaiting_LeavesNothingBehind) {
  Start({.max_in_flight_per_replica = 1, .queue_length = 4});
  Send();
  ASSERT_TRUE(AtReplica(1));
  Send();
  ASSERT_TRUE(Waiting(1));
  fixture_->gateway().Stop(Duration(0));
  EXPECT_EQ(fixture_->queue().waiting, 0u);
  EXPECT_EQ(fixture_->InFlight(), 0);
  held_.LetGo(2);
}

}  // namespace
}  // namespace kvring::router
