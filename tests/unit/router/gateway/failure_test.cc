// What happens when replicas, connections or clients fail.
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "common/absl_view.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/gateway_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Chunk;
using test::Delta;
using test::Event;
using test::Json;
using test::kStreamHead;
using test::RawSocket;
using test::ScriptedUpstream;
using Request = ScriptedUpstream::Request;

void AnswerWell(RawSocket& socket, const Request& request) {
  if (request.body.find("\"stream\":true") == std::string::npos) {
    socket.Send(Json(200, R"({"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}})"));
  } else {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("fine")), Chunk(Event("[DONE]")), "0\r\n\r\n"));
  }
}

// Replica "bad" first: round-robin starts with the first member.
enum class Fault { kClosesWithoutAByte, kRefuses, k503, k500 };
class BeforeFirstByte : public testing::TestWithParam<std::tuple<Fault, bool>> {};

TEST_P(BeforeFirstByte, PRX08_OneCleanAnswerFromTheOther) {
  const auto [fault, stream] = GetParam();
  std::atomic<int> bad_requests{0};
  auto bad = std::make_unique<ScriptedUpstream>([&, fault = fault](RawSocket& socket, const Request&) {
    ++bad_requests;
    if (fault == Fault::k503 || fault == Fault::k500) {
      socket.Send(Json(fault == Fault::k503 ? 503 : 500, "{}", "Retry-After: 1\r\n"));
    } else {
      socket.Close();
    }
  });
  ScriptedUpstream good(AnswerWell);
  GatewayOptions options;
  options.probes.interval = std::chrono::hours(1);
  GatewayFixture fixture(options);
  const ReplicaId bad_id = fixture.Add(bad->url());
  fixture.Add(good.url());
  if (fault == Fault::kRefuses) bad.reset();
  fixture.Start();
  // Whichever the policy starts with: after two requests the bad one was tried.
  RawSocket client = fixture.Connect();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.Send(PostChat(stream, absl::StrCat("X-Request-Id: r", i, "\r\n"))));
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status(), 200);
    EXPECT_NE(answer.body.find(stream ? "fine" : "usage"), std::string::npos);
    if (stream) {
      EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
    }
  }
  EXPECT_EQ(good.count(), 2);
  EXPECT_EQ(fixture.Count("kvring_retries_total"), 1u);
  int attempts = 0;
  for (const char* name : {"r0", "r1"})
    attempts += fixture.guard().With([&](Router& router) { return router.Why(name)->attempts; });
  EXPECT_EQ(attempts, 3);
  if (fault != Fault::kRefuses) {
    EXPECT_EQ(bad_requests, 1);
  }
  EXPECT_TRUE(Eventually([&] { return fixture.InFlight() == 0; }));
  for (const ReplicaView& view : fixture.replicas()) {
    if (view.id == bad_id) {
      EXPECT_EQ(view.failures, fault == Fault::k503 ? 0u : 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllFaults, BeforeFirstByte,
                         testing::Combine(testing::Values(Fault::kClosesWithoutAByte, Fault::kRefuses,
                                                          Fault::k503, Fault::k500),
                                          testing::Bool()));

TEST(AfterFirstByte, PRX07_OneErrorEvent_NoDone_NoReplay) {
  ScriptedUpstream dying([](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), Chunk(Delta("b")), Chunk(Delta("c"))));
    socket.Reset();
  });
  ScriptedUpstream dying_too([](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), Chunk(Delta("b")), Chunk(Delta("c"))));
    socket.Close();
  });
  GatewayFixture fixture;
  fixture.Add(dying.url());
  fixture.Add(dying_too.url());
  fixture.Start();
  for (int i = 1; i <= 2; ++i) {
    RawSocket client = fixture.Connect();
    ASSERT_TRUE(client.Send(PostChat(true)));
    const std::string wire = client.ReadAll();
    const std::string body = Dechunk(wire.substr(wire.find("\r\n\r\n") + 4));
    const std::string deltas = Delta("a") + Delta("b") + Delta("c");
    ASSERT_TRUE(body.starts_with(deltas + "data: {\"error\":{\"message\":")) << body;
    EXPECT_TRUE(body.ends_with("}}\n\n?")) << "the transfer must stay without its end: " << body;
    EXPECT_EQ(body.find("[DONE]"), std::string::npos);
    EXPECT_EQ(body.find("error", deltas.size() + 20), body.rfind("error")) << body;
    EXPECT_EQ(fixture.Count("kvring_failed_after_first_byte_total"), static_cast<uint64_t>(i));
  }
  EXPECT_EQ(dying.count(), 1);
  EXPECT_EQ(dying_too.count(), 1);
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kStreamError), 2u);
  EXPECT_TRUE(Eventually([&] { return fixture.InFlight() == 0; }));
}

TEST(AfterFirstByte, PRX24_EndWithoutLastChunk_IsNeverACleanEnd_AtAnyCut) {
  std::string wire;
  for (int i = 0; i < 6; ++i) wire += Chunk(Delta(absl::StrCat("t", i)));
  std::atomic<size_t> cut{0};
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
    socket.Send(kStreamHead);
    socket.Send(wire.substr(0, cut));
    socket.Close();
  });
  GatewayOptions options;
  options.max_attempts = 1;
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  const std::string whole = Dechunk(wire + "0\r\n\r\n");
  for (cut = 0; cut <= wire.size(); cut += 7) {
    RawSocket client = fixture.Connect();
    ASSERT_TRUE(client.Send(PostChat(true, "Connection: close\r\n")));
    const std::string answer = client.ReadAll();
    if (answer.starts_with("HTTP/1.1 502 ")) continue;  // nothing of the body had come
    ASSERT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    const std::string body = Dechunk(answer.substr(answer.find("\r\n\r\n") + 4));
    EXPECT_TRUE(body.ends_with("?")) << cut << ": " << body;
    const size_t error = body.find("data: {\"error\"");
    const std::string relayed =
        error == std::string::npos ? body.substr(0, body.size() - 1) : body.substr(0, error);
    EXPECT_TRUE(whole.starts_with(relayed)) << body;
    if (error != std::string::npos && error > 0) {
      EXPECT_TRUE(relayed.ends_with("\n\n")) << "an event may only follow a whole one: " << body;
    }
    fixture.guard().With([&](Router& router) {  // the ejection is not what is tested
      router.OnReplicaFacts(router.Replicas(Now())[0].id, {.epoch = {cut + 1}}, Now());
    });
  }
}

TEST(AfterFirstByte, PRX24_CleanEndWithoutDone_PassesAndIsCounted) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), "0\r\n\r\n"));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  EXPECT_EQ(ReadAnswer(client).body, Delta("a"));
  EXPECT_TRUE(Eventually([&] { return fixture.Outcomes(OutcomeClass::kOk) == 1; }));
  EXPECT_EQ(fixture.Count("kvring_stream_missing_done_total"), 1u);
}

TEST(AfterFirstByte, PlainAnswerCutShort_IsAnIncompleteTransfer) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) {
    socket.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":");
    socket.Close();
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(false)));
  EXPECT_TRUE(client.ReadAll().ends_with("\r\n\r\n{\"half\":"));
  EXPECT_EQ(fixture.Count("kvring_failed_after_first_byte_total"), 1u);
}

enum class Leave { kFin, kRst, kBeforeFirstByte };
class ClientLeaves : public testing::TestWithParam<std::tuple<Leave, bool>> {};

TEST_P(ClientLeaves, PRX06_UpstreamIsClosed_GaugeFallsToZero_Is499) {
  const auto [leave, stream] = GetParam();
  constexpr int kStreams = 50;
  absl::Mutex mutex;
  int begun = 0;
  int closed = 0;
  ScriptedUpstream upstream([&, leave = leave, stream = stream](RawSocket& socket, const Request&) {
    if (leave != Leave::kBeforeFirstByte && stream) {
      socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), Chunk(Delta("b")), Chunk(Delta("c"))));
    } else if (leave != Leave::kBeforeFirstByte) {
      socket.Send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{\"begin\":");
    }
    {
      absl::MutexLock lock(&mutex);
      ++begun;
    }
    const bool in_time = socket.ClosedWithin(seconds(10));
    absl::MutexLock lock(&mutex);
    closed += in_time;
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  std::vector<RawSocket> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(fixture.Connect());
    ASSERT_TRUE(clients.back().Send(PostChat(stream)));
    if (leave != Leave::kBeforeFirstByte) clients.back().ReadUntil(stream ? "\"c\"}}]}\n\n" : "{\"begin\":");
  }
  {
    absl::MutexLock lock(&mutex);
    const auto all = [&] { return begun == kStreams; };
    ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(10)));
  }
  EXPECT_EQ(fixture.InFlight(), kStreams);
  const Instant left = Now();
  for (RawSocket& client : clients) {
    if (leave == Leave::kRst) {
      client.Reset();
    } else {
      client.Close();
    }
  }
  {
    absl::MutexLock lock(&mutex);
    const auto all = [&] { return closed == kStreams; };
    ASSERT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(10)));
  }
  EXPECT_LT(Now() - left, seconds(1));
  EXPECT_TRUE(Eventually([&] { return fixture.Count("kvring_client_closed_total") == kStreams; }));
  EXPECT_TRUE(Eventually([&] { return fixture.InFlight() == 0; }));
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kClientAbort), static_cast<uint64_t>(kStreams));
  EXPECT_EQ(fixture.replicas()[0].failures, 0u);
  EXPECT_EQ(fixture.replicas()[0].state, ReplicaState::kUp);
}

INSTANTIATE_TEST_SUITE_P(Ways, ClientLeaves,
                         testing::Combine(testing::Values(Leave::kFin, Leave::kRst, Leave::kBeforeFirstByte),
                                          testing::Bool()));

// PRX-15: a kept connection that the replica ends, in three ways. Every second request meets one.
enum class Stale { kFinWhileIdle, kRstOnRequest, kFinOnRequest };
class StaleConnection : public testing::TestWithParam<std::tuple<Stale, bool>> {};

TEST_P(StaleConnection, PRX15_IsReplayedOnce_ClientSeesNothing) {
  const auto [way, stream] = GetParam();
  std::atomic<int> executed{0};
  ScriptedUpstream upstream([&, way = way](RawSocket& socket, const Request& request) {
    if (request.on_connection == 2) {
      if (way == Stale::kRstOnRequest) return socket.Reset();
      return socket.Close();
    }
    ++executed;
    AnswerWell(socket, request);
    if (way == Stale::kFinWhileIdle) socket.Close();
  });
  GatewayOptions options;
  options.probes.interval = std::chrono::hours(1);
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  constexpr int kRequests = 200;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(client.Send(PostChat(stream)));
    ASSERT_EQ(ReadAnswer(client).status(), 200) << i;
  }
  EXPECT_EQ(executed, kRequests);
  EXPECT_EQ(fixture.replicas()[0].failures, 0u);
  EXPECT_EQ(fixture.Count("kvring_retries_total"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, StaleConnection,
                         testing::Combine(testing::Values(Stale::kFinWhileIdle, Stale::kRstOnRequest,
                                                          Stale::kFinOnRequest),
                                          testing::Bool()));

TEST(StaleConnection, PRX15_AFreshConnectionThatFailsTheSameWay_IsAFailure) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Close(); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(false)));
  const Answer answer = ReadAnswer(client);
  EXPECT_EQ(answer.status(), 502);
  EXPECT_NE(answer.body.find("\"code\":\"replica_failed\""), std::string::npos);
  EXPECT_EQ(upstream.count(), 1);
  EXPECT_EQ(fixture.replicas()[0].failures, 1u);
}

TEST(Health, HLT02_BackpressureIsNotDeath_TheNextRequestIsServed) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request& request) {
    if (request.number <= 20) return (void)socket.Send(Json(503, "{\"busy\":true}", "Retry-After: 2\r\n"));
    AnswerWell(socket, request);
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (int i = 1; i <= 21; ++i) {
    ASSERT_TRUE(client.Send(PostChat(false)));
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status(), i <= 20 ? 503 : 200) << i;
    if (i <= 20) {
      EXPECT_EQ(answer.body, "{\"busy\":true}");
      EXPECT_TRUE(answer.Has("Retry-After: 2"));
    }
  }
  EXPECT_EQ(upstream.count(), 21);
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kBackpressure), 20u);
}

TEST(Health, HLT15_EveryFailedAttemptIsRecorded) {
  const auto fail = [](RawSocket& socket, const Request&) { socket.Send(Json(500, "{}")); };
  ScriptedUpstream one(fail);
  ScriptedUpstream two(fail);
  ScriptedUpstream three(AnswerWell);
  GatewayFixture fixture;
  fixture.Add(one.url());
  fixture.Add(two.url());
  fixture.Add(three.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  int tries = 0;
  while ((one.count() == 0 || two.count() == 0) && ++tries <= 3) {
    ASSERT_TRUE(client.Send(PostChat(false)));
    EXPECT_EQ(ReadAnswer(client).status(), 200);
  }
  for (const ReplicaView& view : fixture.replicas()) {
    const int seen = view.url == one.url() ? one.count() : view.url == two.url() ? two.count() : 0;
    EXPECT_EQ(view.failures, static_cast<uint64_t>(seen)) << view.url;
  }
}

TEST(Health, AllReplicasFail_TheLastAnswerIsPassedOn_AttemptsAreBounded) {
  const auto fail = [](RawSocket& socket, const Request&) { socket.Send(Json(500, "{\"boom\":1}")); };
  std::vector<std::unique_ptr<ScriptedUpstream>> upstreams;
  GatewayFixture fixture;
  for (int i = 0; i < 5; ++i) {
    upstreams.push_back(std::make_unique<ScriptedUpstream>(fail));
    fixture.Add(upstreams.back()->url());
  }
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  const Answer answer = ReadAnswer(client);
  EXPECT_EQ(answer.status(), 500);
  EXPECT_EQ(answer.body, "{\"boom\":1}");
  int seen = 0;
  for (const auto& upstream : upstreams) seen += upstream->count();
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(Eventually([&] { return fixture.Outcomes(OutcomeClass::kReplicaError) == 1; }));
}

// Whether the connection is fresh or kept: what breaks every replica that takes it is tried on two, not on
// all.
TEST(Losses, RequestThatKills_TakesDownTwoAtMost) {
  for (const bool kept : {false, true}) {
    std::vector<std::unique_ptr<ScriptedUpstream>> replicas;
    GatewayOptions options;
    options.max_attempts = 4;
    GatewayFixture fixture(options);
    for (int i = 0; i < 4; ++i) {
      replicas.push_back(std::make_unique<ScriptedUpstream>([](RawSocket& socket, const Request& request) {
        if (request.body.find("poison") == std::string::npos) return AnswerWell(socket, request);
        socket.Close();
      }));
      fixture.Add(replicas.back()->url());
    }
    fixture.Start();
    RawSocket client = fixture.Connect();
    for (int i = 0; i < (kept ? 4 : 0); ++i) {
      client.Send(PostChat(false));
      EXPECT_EQ(ReadAnswer(client).status(), 200);
    }
    client.Send(PostBody(ChatBody(false, "poison")));
    EXPECT_EQ(ReadAnswer(client).status(), 502);
    int harmed = 0;
    for (const auto& replica : replicas) harmed += replica->last().body.find("poison") != std::string::npos;
    EXPECT_EQ(harmed, 2);
  }
}

TEST(Health, HLT13_MemberRemovedWithStreamsRunning_AndAddedAgain_GaugesStaySeparate) {
  absl::Notification go;
  ScriptedUpstream upstream([&](RawSocket& socket, const Request& request) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a"))));
    go.WaitForNotificationWithTimeout(absl::Seconds(10));
    if (request.number % 2 == 0) return socket.Close();
    socket.Send(Chunk(Event("[DONE]")) + "0\r\n\r\n");
  });
  GatewayFixture fixture;
  const ReplicaId old = fixture.Add(upstream.url());
  fixture.Start();
  std::vector<RawSocket> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(fixture.Connect());
    ASSERT_TRUE(clients.back().Send(PostChat(true)));
    clients.back().ReadUntil("\"a\"}}]}\n\n");
  }
  fixture.guard().With([&](Router& router) { router.RemoveReplica(old, Now()); });
  const ReplicaId again = fixture.Add(upstream.url());
  EXPECT_NE(again, old);
  EXPECT_EQ(fixture.InFlight(), 0);  // of the new life
  go.Notify();
  int whole = 0;
  for (RawSocket& client : clients) whole += client.ReadUntil("\r\n0\r\n\r\n").ends_with("\r\n0\r\n\r\n");
  EXPECT_EQ(whole, 5);
  EXPECT_TRUE(Eventually([&] { return fixture.Outcomes(OutcomeClass::kOk) == 5; }));
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kStreamError), 5u);
  EXPECT_EQ(fixture.Count("kvring_failed_after_first_byte_total"), 5u);
  EXPECT_EQ(fixture.InFlight(), 0);
  EXPECT_EQ(fixture.replicas()[0].failures, 0u);
}

TEST(Health, HLT18_EmptyPoolIs503_WithRetryAfterAndReason) {
  GatewayFixture fixture;
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (const bool stream : {false, true}) {
    ASSERT_TRUE(client.Send(PostChat(stream)));
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status(), 503);
    EXPECT_TRUE(answer.Has("x-kvring-reason: no_endpoints"));
    EXPECT_TRUE(answer.Names("Retry-After"));
    EXPECT_NE(answer.body.find("\"code\":\"no_endpoints\""), std::string::npos);
  }
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kRefused), 2u);
  ASSERT_TRUE(client.Send("GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(ReadAnswer(client).status(), 503);
}

// Accepts and never answers, probes neither: probes take it down, and its request moves to the other replica.
TEST(Health, FrozenReplica_IsGivenUpByProbes_AndItsRequestServedElsewhere) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ::listen(listener, 128);
  socklen_t size = sizeof at;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  ScriptedUpstream good(AnswerWell);
  GatewayOptions options;
  options.probes = {.interval = milliseconds(100), .timeout = milliseconds(100)};
  GatewayFixture fixture(options);
  fixture.Add(absl::StrCat("http://127.0.0.1:", ntohs(at.sin_port)));
  fixture.Add(good.url());
  fixture.Start();
  std::vector<RawSocket> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(fixture.Connect());
    ASSERT_TRUE(clients.back().Send(PostChat(i == 0)));
  }
  for (RawSocket& client : clients) EXPECT_EQ(ReadAnswer(client).status(), 200);
  EXPECT_EQ(good.count(), 2);
  ::close(listener);
}

TEST(Health, NewMember_IsProbedAndTakesRequests_WithItsModels) {
  GatewayOptions options;
  options.probes.interval = milliseconds(50);
  GatewayFixture fixture(options);
  fixture.Start();
  ScriptedUpstream late(AnswerWell, "late-model");
  fixture.guard().With([&](Router& router) { router.AddReplica({.url = late.url()}, Now()); });
  ASSERT_TRUE(Eventually([&] {
    return fixture.replicas()[0].state == ReplicaState::kUp && !fixture.replicas()[0].models.empty();
  }));
  EXPECT_EQ(fixture.replicas()[0].models, std::vector<std::string>{"late-model"});
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostBody("{\"model\":\"late-model\",\"messages\":[]}")));
  EXPECT_EQ(ReadAnswer(client).status(), 200);
}

TEST(Stop, RunningStreamEndsWell_ThenTheGatewayEnds) {
  absl::Notification go;
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a"))));
    go.WaitForNotificationWithTimeout(absl::Seconds(10));
    socket.Send(Chunk(Event("[DONE]")) + "0\r\n\r\n");
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  RawSocket idle = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  client.ReadUntil("\"a\"}}]}\n\n");
  std::thread stop([&] { fixture.gateway().Stop(seconds(10)); });
  EXPECT_TRUE(idle.ClosedWithin(seconds(10)));
  go.Notify();
  EXPECT_NE(client.ReadAll().find("data: [DONE]\n\n\r\n0\r\n\r\n"), std::string::npos);
  stop.join();
  EXPECT_TRUE(Eventually([&] { return fixture.InFlight() == 0; }));
}

}  // namespace
}  // namespace kvring::router
