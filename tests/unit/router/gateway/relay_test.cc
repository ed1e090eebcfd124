// What passes through: bodies, streams, heads, limits.
#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/synchronization/notification.h"
#include "common/absl_view.h"
#include "common/random.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/gateway_fixture.h"

namespace kvring::router {
namespace {

using test::Chunk;
using test::Delta;
using test::Event;
using test::Json;
using test::kStreamHead;
using test::RawSocket;
using test::ScriptedUpstream;
using Request = ScriptedUpstream::Request;

constexpr std::string_view kAnswer =
    R"({"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":287,"completion_tokens":8,"total_tokens":295,"prompt_tokens_details":{"cached_tokens":256}}})";

TEST(Relay, PlainAnswer_IsByteExact_WithIdAndDecisionHeaders) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (int i = 0; i < 5; ++i) {  // one connection on both sides
    ASSERT_TRUE(client.Send(PostChat(false, "X-Request-Id: abc\r\n")));
    const Answer answer = ReadAnswer(client);
    EXPECT_EQ(answer.status(), 200);
    EXPECT_EQ(answer.body, kAnswer);
    EXPECT_TRUE(answer.Has("x-request-id: abc"));
    EXPECT_TRUE(answer.Has("x-kvring-replica: " + fixture.replicas()[0].name));
    EXPECT_TRUE(answer.Names("x-kvring-reason"));
    EXPECT_TRUE(answer.Names("x-kvring-predicted-cached-tokens"));
  }
  EXPECT_EQ(upstream.last().on_connection, 5);
  EXPECT_EQ(upstream.last().body, ChatBody(false));
  // The core knows of the end before the client sees it.
  EXPECT_EQ(fixture.totals().cached_tokens, 5u * 256);
  EXPECT_EQ(fixture.InFlight(), 0);
}

TEST(Relay, PRX01_PRX03_StreamCutAnywhere_BytesAndUsageAreTheSame) {
  std::string wire;
  for (int i = 0; i < 20; ++i) wire += Chunk(Delta(absl::StrCat("A\U0001F600\u65e5", i)));
  wire += Chunk(Event(
      R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":3}}})"));
  wire += Chunk(Event("[DONE]")) + "0\r\n\r\n";
  const std::string expected = Dechunk(wire);
  ScriptedUpstream upstream([&](RawSocket& socket, const Request& request) {
    socket.Send(kStreamHead);
    Random random(static_cast<uint64_t>(request.number));
    for (size_t at = 0; at < wire.size();) {
      const size_t n = request.number == 1 ? 1 : 1 + random.Below(200);
      socket.Send(std::string_view(wire).substr(at, n));
      at += n;
    }
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (int run = 1; run <= 30; ++run) {
    ASSERT_TRUE(client.Send(PostChat(true)));
    const Answer answer = ReadAnswer(client);
    ASSERT_EQ(answer.body, expected) << run;
    EXPECT_TRUE(
        Eventually([&] { return fixture.totals().prompt_tokens == 7u * static_cast<uint64_t>(run); }));
  }
  EXPECT_EQ(fixture.totals().cached_tokens, 90u);
  EXPECT_EQ(fixture.Count("kvring_stream_bad_events_total"), 0u);
  EXPECT_EQ(fixture.Count("kvring_stream_missing_done_total"), 0u);
}

TEST(Relay, PRX05_UsageWhereverItStands_IsRecorded) {
  const std::string usage =
      R"("usage":{"prompt_tokens":287,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":256}})";
  const std::string last[] = {"{\"choices\":[]," + usage + "}", "{" + usage + "}",
                              R"({"choices":[{"index":0,"delta":{}}],)" + usage + "}"};
  ScriptedUpstream upstream([&](RawSocket& socket, const Request& request) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), Chunk(Event(last[request.number - 1])),
                             Chunk(Event("[DONE]")), "0\r\n\r\n"));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(client.Send(PostChat(true)));
    EXPECT_EQ(ReadAnswer(client).status(), 200);
    EXPECT_TRUE(Eventually([&] { return fixture.Outcomes(OutcomeClass::kOk) == i; }));
    const Totals totals = fixture.totals();
    EXPECT_EQ(totals.prompt_tokens, 287 * i);
    EXPECT_EQ(totals.completion_tokens, 8 * i);
    EXPECT_EQ(totals.cached_tokens, 256 * i);
  }
}

// The next turn sends the answer back: it is known there, though the replica told nothing but text.
TEST(Relay, GeneratedTextOfHttpReplicas_CountsForTheNextTurn) {
  const std::string said(2000, 'y');
  for (const bool stream : {false, true}) {
    ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
      if (stream) {
        socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta(said)), Chunk(Event("[DONE]")), "0\r\n\r\n"));
      } else {
        socket.Send(
            Json(200, absl::StrCat(R"({"choices":[{"index":0,"message":{"content":")", said,
                                   R"("}}],"usage":{"prompt_tokens":500,"completion_tokens":500}})")));
      }
    });
    GatewayFixture fixture;
    fixture.Add(upstream.url());
    fixture.Start();
    RawSocket client = fixture.Connect();
    const std::string question(2000, 'x');
    ASSERT_TRUE(client.Send(PostBody(ChatBody(stream, question))));
    EXPECT_EQ(ReadAnswer(client).status(), 200);
    const std::string next = absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":")", question,
                                          R"("},{"role":"assistant","content":")", said,
                                          R"("},{"role":"user","content":"go on"}]})");
    ASSERT_TRUE(client.Send(PostBody(next)));
    const std::string name = "x-kvring-predicted-cached-tokens: ";
    const Answer answer = ReadAnswer(client);
    EXPECT_GT(std::stoi(answer.head.substr(answer.head.find(name) + name.size())), 900) << stream;
  }
}

TEST(Relay, PRX09_BrokenEvent_PassesAndIsCounted_ReplicaNotPenalised) {
  std::string body;
  for (int i = 0; i < 60; ++i) body += (i == 9 ? "data: {\"bro\n\n" : "") + Delta("x");
  body += Event(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":60}})") + Event("[DONE]");
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(body), "0\r\n\r\n"));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  EXPECT_EQ(ReadAnswer(client).body, body);
  EXPECT_TRUE(Eventually([&] { return fixture.Outcomes(OutcomeClass::kOk) == 1; }));
  EXPECT_EQ(fixture.Count("kvring_stream_bad_events_total"), 1u);
  EXPECT_EQ(fixture.totals().completion_tokens, 60u);
  EXPECT_EQ(fixture.replicas()[0].failures, 0u);
}

TEST(Relay, PRX11_ErrorAnswerToAStream_KeepsItsLengthAndType) {
  const std::string error = R"({"error":{"message":"bad temperature","type":"invalid"}})";
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) { socket.Send(Json(400, error)); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  const Answer answer = ReadAnswer(client);
  EXPECT_EQ(answer.status(), 400);
  EXPECT_EQ(answer.body, error);
  EXPECT_TRUE(answer.Has(absl::StrCat("Content-Length: ", error.size())));
  EXPECT_TRUE(answer.Has("Content-Type: application/json"));
  EXPECT_FALSE(answer.Names("Transfer-Encoding"));
  EXPECT_EQ(fixture.Outcomes(OutcomeClass::kClientError), 1u);
  EXPECT_EQ(upstream.count(), 1);  // a 4xx is the request's: not tried again
}

TEST(Relay, PRX12_PRX20_Alias_ChangesTheModelAndNothingElse) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayOptions options;
  options.access->Replace({.aliases = {{"a", "m"}}});
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  const std::string before =
      R"({"x_vendor":{"model":"a","k":[1,null]},"seed":12345678901234567890,"temperature":0.30000000000000004, "stop":null, "model" : )";
  const std::string after =
      R"(,"messages":[{"role":"user","content":"say \"model\": \"a\""}],"return_token_ids":true,"chat_template_kwargs":{"enable_thinking":false}})";
  RawSocket client = fixture.Connect();
  for (const std::string_view asked : {"a", "default", "m"}) {
    const std::string body = absl::StrCat(before, "\"", Absl(asked), "\"", after);
    ASSERT_TRUE(client.Send(PostBody(body)));
    EXPECT_EQ(ReadAnswer(client).status(), 200);
    EXPECT_EQ(upstream.last().body, before + "\"m\"" + after) << asked;
    EXPECT_EQ(upstream.last().Field("Content-Length"), std::to_string(upstream.last().body.size()));
    // The same, chunked by the client: one framing goes up.
    ASSERT_TRUE(client.Send(
        absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                     Chunk(body), "0\r\n\r\n")));
    EXPECT_EQ(ReadAnswer(client).status(), 200);
    EXPECT_EQ(upstream.last().body, before + "\"m\"" + after);
    EXPECT_EQ(upstream.last().Field("Transfer-Encoding"), "");
  }
}

std::string Gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(Relay, PRX12_SEC10_EncodedBody_IsDecodedWithinTheLimit_OrRefused) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayOptions options;
  options.http.max_body_bytes = 1 << 20;
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostBody(Gzip(ChatBody(false)), "Content-Encoding: gzip\r\n")));
  EXPECT_EQ(ReadAnswer(client).status(), 200);
  EXPECT_EQ(upstream.last().body, ChatBody(false));
  EXPECT_EQ(upstream.last().Field("Content-Encoding"), "");
  const std::pair<std::string, std::string> bad[] = {{"gzip", Gzip(std::string(2 << 20, ' '))},
                                                     {"br", "x"},
                                                     {"gzip, gzip", "x"},
                                                     {"gzip\r\nContent-Encoding: gzip", Gzip(Gzip("{}"))},
                                                     {"gzip", "no gzip"},
                                                     {"zstd", "no zstd"}};
  const int statuses[] = {413, 415, 415, 415, 400, 400};
  for (size_t i = 0; i < std::size(bad); ++i) {
    ASSERT_TRUE(client.Send(PostBody(bad[i].second, "Content-Encoding: " + bad[i].first + "\r\n")));
    EXPECT_EQ(ReadAnswer(client).status(), statuses[i]) << i;
  }
  EXPECT_EQ(upstream.count(), 1);
}

TEST(Relay, PRX13_HopByHopFields_StayOnTheirHop_OthersPassInOrder) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) {
    socket.Send(Json(200, kAnswer,
                     "Connection: keep-alive, X-Drop\r\nX-Drop: 1\r\nKeep-Alive: timeout=5\r\nTrailer: "
                     "T\r\nUpgrade: h2c\r\nProxy-Authenticate: x\r\n"
                     "Set-Cookie: a\r\nSet-Cookie: b\r\nX-Request-Id: theirs\r\n"));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(
      client.Send(PostChat(false,
                           "Connection: keep-alive, X-Drop\r\nX-Drop: 1\r\nKeep-Alive: timeout=5\r\nTE: "
                           "trailers\r\nUpgrade: h2c\r\n"
                           "Proxy-Authorization: Basic x\r\nTrailer: T\r\nX-Multi: 1\r\nX-Multi: 2\r\n")));
  const Answer answer = ReadAnswer(client);
  const std::string seen = upstream.last().head;
  for (const char* name : {"\r\nConnection:", "X-Drop", "Keep-Alive", "\r\nTE:", "Upgrade",
                           "Proxy-Authorization", "Trailer", "Transfer-Encoding"}) {
    EXPECT_EQ(seen.find(name), std::string::npos) << name;
  }
  EXPECT_NE(seen.find("X-Multi: 1\r\nX-Multi: 2\r\n"), std::string::npos);
  for (const char* name : {"Connection", "X-Drop", "Keep-Alive", "Trailer", "Upgrade", "Proxy-Authenticate"})
    EXPECT_FALSE(answer.Names(name)) << name;
  EXPECT_NE(answer.head.find("Set-Cookie: a\r\nSet-Cookie: b\r\n"), std::string::npos);
  EXPECT_EQ(answer.head.find("theirs"), std::string::npos);
}

TEST(Relay, PRX14_SEC04_HostIsTheReplicas_ForwardedFieldsAreAppended) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) {
    socket.Send(Json(200, "squeezed", "Content-Encoding: br\r\n"));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  const std::string body = ChatBody(false);
  ASSERT_TRUE(
      client.Send(absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: api.example\r\nExpect: "
                               "100-continue\r\nAccept-Encoding: br\r\n"
                               "X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Host: evil\r\nContent-Length: ",
                               body.size(), "\r\n\r\n")));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send(body));
  const Answer answer = ReadAnswer(client);
  EXPECT_EQ(answer.body, "squeezed");
  EXPECT_TRUE(answer.Has("Content-Encoding: br"));
  const Request seen = upstream.last();
  EXPECT_EQ(seen.Field("Host"), absl::StrCat("127.0.0.1:", upstream.port()));
  EXPECT_EQ(seen.Field("X-Forwarded-Host"), "api.example");
  EXPECT_EQ(seen.Field("X-Forwarded-For"), "10.0.0.1, 127.0.0.1");
  EXPECT_EQ(seen.Field("Accept-Encoding"), "br");
  EXPECT_EQ(seen.Field("Expect"), "");
}

TEST(Relay, PRX18_EveryEventIsPassedAtOnce_WithHeadersAgainstBuffering) {
  absl::Mutex mutex;
  int read = 0;
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
    socket.Send(kStreamHead);
    for (int i = 0; i < 60; ++i) {
      socket.Send(Chunk(Delta(std::to_string(i))));
      absl::MutexLock lock(&mutex);  // the next one only when the client has this one
      const auto has = [&] { return read == i + 1; };
      if (!mutex.AwaitWithTimeout(absl::Condition(&has), absl::Seconds(10))) return socket.Close();
    }
    socket.Send("0\r\n\r\n");
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_NE(head.find("\r\nX-Accel-Buffering: no\r\n"), std::string::npos);
  EXPECT_NE(head.find("\r\nCache-Control: no-cache\r\n"), std::string::npos);
  for (int i = 0; i < 60; ++i) {
    EXPECT_NE(client.ReadUntil("}]}\n\n").find(absl::StrCat("\"", i, "\"")), std::string::npos);
    absl::MutexLock lock(&mutex);
    read = i + 1;
  }
  EXPECT_TRUE(client.ReadUntil("0\r\n\r\n").ends_with("0\r\n\r\n"));
}

TEST(Relay, PRX19_Heartbeats_OnlyBetweenEvents) {
  absl::Notification beat;
  ScriptedUpstream upstream([&](RawSocket& socket, const Request& request) {
    socket.Send(kStreamHead);
    socket.Send(Chunk(Delta("a")));
    if (request.number == 1) {
      beat.WaitForNotificationWithTimeout(absl::Seconds(10));
      socket.Send(Chunk("data: {\"choi"));
      // Quiet for longer than the heartbeat, in the middle of an event: nothing may come.
      (void)socket.ClosedWithin(std::chrono::milliseconds(700));
      socket.Send(Chunk("ces\":[]}\n\n"));
    }
    socket.Send(Chunk(Event("[DONE]")) + "0\r\n\r\n");
  });
  GatewayOptions options;
  options.heartbeat = std::chrono::milliseconds(200);
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  client.ReadUntil("\r\n\r\n");
  std::string wire = client.ReadUntil(": \n\n");
  EXPECT_TRUE(wire.ends_with(": \n\n"));
  beat.Notify();
  wire += client.ReadUntil("\r\n0\r\n\r\n");
  const std::string body = Dechunk(wire);
  EXPECT_NE(body.find("data: {\"choices\":[]}\n\n"), std::string::npos) << body;
}

TEST(Relay, PRX21_EveryContentForm_IsForwardedByteExact) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  for (const char* content :
       {R"("hi")", R"([{"type":"text","text":"hi"}])",
        R"([{"type":"text","text":"h"},{"type":"text","text":"i"}])",
        R"([{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"hi"}])",
        R"(null,"tool_calls":[{"id":"1"}])", R"([{"type":"x","y":1}])"}) {
    const std::string body =
        absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":)", content, "}]}");
    ASSERT_TRUE(client.Send(PostBody(body)));
    EXPECT_EQ(ReadAnswer(client).status(), 200) << content;
    EXPECT_EQ(upstream.last().body, body);
  }
}

class BodyLimit : public testing::TestWithParam<std::tuple<bool, std::string>> {};

TEST_P(BodyLimit, PRX22_UpToTheLimitIntact_BeyondIt413) {
  const auto [chunked, path] = GetParam();
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  constexpr size_t kLimit = 32 << 20;
  for (const size_t size : {size_t{128 << 10} - 1, size_t{128 << 10} + 1, size_t{2 << 20} + 1,
                            size_t{16 << 20} + 1, kLimit, kLimit + 1}) {
    std::string body = R"({"model":"m","prompt":")";
    Random random(size);
    while (body.size() < size - 2) body.push_back(static_cast<char>('a' + random.Below(26)));
    body += "\"}";
    ASSERT_EQ(body.size(), size);
    RawSocket client = fixture.Connect();
    std::thread sender([&] {
      client.Send(chunked ? absl::StrCat("POST ", path,
                                         " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                                         Chunk(body), "0\r\n\r\n")
                          : PostBody(body, "", path));
    });
    const Answer answer = ReadAnswer(client);
    if (size <= kLimit) {
      EXPECT_EQ(answer.status(), 200) << size;
      EXPECT_TRUE(upstream.last().body == body) << size;
    } else {
      EXPECT_EQ(answer.status(), 413);
      EXPECT_NE(answer.body.find("\"type\":\"invalid_request_error\""), std::string::npos);
    }
    client.FinishSending();
    sender.join();
  }
  EXPECT_EQ(upstream.count(), 5);
}

INSTANTIATE_TEST_SUITE_P(Routes, BodyLimit,
                         testing::Combine(testing::Bool(),
                                          testing::Values("/v1/completions", "/v1/embeddings")));

TEST(Relay, PRX26_RequestIds_AreEchoedOrReplaced_NeverKeys) {
  absl::Mutex mutex;
  int waiting = 0;
  ScriptedUpstream upstream([&](RawSocket& socket, const Request& request) {
    {
      absl::MutexLock lock(&mutex);
      ++waiting;
      const auto both = [&] { return waiting >= 2; };
      mutex.AwaitWithTimeout(absl::Condition(&both), absl::Seconds(10));
    }
    socket.Send(Json(200, request.body));
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket one = fixture.Connect();
  RawSocket two = fixture.Connect();
  const std::string same =
      "X-Request-Id: same\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
  ASSERT_TRUE(one.Send(PostBody(ChatBody(false, "one"), same)));
  ASSERT_TRUE(two.Send(PostBody(ChatBody(false, "two"), same)));
  const Answer first = ReadAnswer(one);
  const Answer second = ReadAnswer(two);
  EXPECT_EQ(first.body, ChatBody(false, "one"));
  EXPECT_EQ(second.body, ChatBody(false, "two"));
  EXPECT_TRUE(first.Has("x-request-id: same"));
  const auto recent = fixture.guard().With([](Router& router) { return router.RecentDecisions(2); });
  ASSERT_EQ(recent.size(), 2u);
  EXPECT_NE(recent[0].id, recent[1].id);
  ASSERT_TRUE(one.Send(PostChat(false, "X-Request-Id: " + std::string(129, 'a') + "\r\n")));
  const Answer replaced = ReadAnswer(one);
  EXPECT_NE(replaced.head.find("\r\nx-request-id: req-"), std::string::npos);
  EXPECT_EQ(upstream.last().Field("X-Request-Id").substr(0, 4), "req-");
  ASSERT_TRUE(one.Send(PostChat(false, "X-Request-Id: a\rb\r\n")));
  EXPECT_EQ(ReadAnswer(one).status(), 400);
}

TEST(Relay, SEC06_KeysAndCookiesStayHere_TheReplicaGetsItsOwn) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayOptions options;
  options.access->Replace({.keys = {{.name = "one", .key = "K1"}}, .replica_keys = {{upstream.url(), "K2"}}});
  GatewayFixture fixture(options);
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(false, "Authorization: Bearer K1\r\nCookie: s=1\r\n")));
  EXPECT_EQ(ReadAnswer(client).status(), 200);
  EXPECT_EQ(upstream.last().Field("Authorization"), "Bearer K2");
  EXPECT_EQ(upstream.last().head.find("K1"), std::string::npos);
  EXPECT_EQ(upstream.last().Field("Cookie"), "");
  for (const char* line : {"", "Authorization: Bearer K3\r\n", "Authorization: K1\r\n"}) {
    ASSERT_TRUE(client.Send(PostChat(false, line)));
    EXPECT_EQ(ReadAnswer(client).status(), 401);
  }
  ASSERT_TRUE(client.Send("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(ReadAnswer(client).status(), 401);
  ASSERT_TRUE(client.Send("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(ReadAnswer(client).status(), 200);
}

TEST(Relay, SlowClient_SlowsTheReplica_WithBoundedMemory) {
  constexpr size_t kTotal = size_t{256} << 20;
  std::atomic<size_t> written{0};
  absl::Notification stalled;
  const std::string piece(64 << 10, 'x');
  ScriptedUpstream upstream([&](RawSocket& socket, const Request&) {
    socket.Send(absl::StrCat(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: ", kTotal, "\r\n\r\n"));
    while (written < kTotal) {
      const ssize_t n = ::send(socket.fd(), piece.data(), std::min(piece.size(), kTotal - written),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) {
        written += static_cast<size_t>(n);
        continue;
      }
      pollfd entry{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
      if (errno != EAGAIN) return;
      if (::poll(&entry, 1, 500) == 0 && !stalled.HasBeenNotified()) stalled.Notify();
    }
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send("GET /v1/files/1/content HTTP/1.1\r\nHost: h\r\n\r\n"));
  // Nothing is read: the replica stands still once the socket buffers of both hops are full. They hold a few
  // MiB.
  ASSERT_TRUE(stalled.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_LT(written, kTotal / 4);
  client.ReadUntil("\r\n\r\n");
  size_t read = 0;
  while (read < kTotal) {
    const size_t n = client.Read(1 << 20).size();
    if (n == 0) break;
    read += n;
  }
  EXPECT_EQ(read, kTotal);
}

TEST(Relay, Http10Client_GetsPlainBytesUntilClose_UntilCloseReplica_IsChunked) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request& request) {
    if (request.number == 1) {
      socket.Send(absl::StrCat(Absl(kStreamHead), Chunk(Delta("a")), Chunk(Delta("b")), "0\r\n\r\n"));
    } else {
      socket.Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + Delta("a") + Delta("b"));
      socket.Close();
    }
  });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start();
  RawSocket old = fixture.Connect();
  const std::string body = ChatBody(true);
  ASSERT_TRUE(old.Send(
      absl::StrCat("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: ", body.size(), "\r\n\r\n", body)));
  EXPECT_TRUE(old.ReadAll().ends_with("\r\n\r\n" + Delta("a") + Delta("b")));
  RawSocket client = fixture.Connect();
  ASSERT_TRUE(client.Send(PostChat(true)));
  EXPECT_EQ(ReadAnswer(client).body, Delta("a") + Delta("b"));
}

TEST(Local, ModelsHealthMetricsAdmin_AreAnsweredHere) {
  ScriptedUpstream upstream([](RawSocket& socket, const Request&) { socket.Send(Json(200, kAnswer)); });
  GatewayFixture fixture;
  fixture.Add(upstream.url());
  fixture.Start([](const net::HttpRequest& request) -> std::optional<net::HttpResponse> {
    if (request.path() != "/admin/v1/echo") return std::nullopt;
    return net::JsonResponse(200, absl::StrCat("{\"loopback\":", request.peer_is_loopback ? "true" : "false",
                                               ",\"body\":\"", request.body, "\"}"));
  });
  RawSocket client = fixture.Connect();
  const auto get = [&](std::string_view path) {
    client.Send(absl::StrCat("GET ", Absl(path), " HTTP/1.1\r\nHost: h\r\n\r\n"));
    return ReadAnswer(client);
  };
  EXPECT_EQ(get("/healthz").status(), 200);
  EXPECT_EQ(get("/readyz").status(), 200);
  EXPECT_NE(get("/v1/models").body.find("\"id\":\"m\""), std::string::npos);
  EXPECT_EQ(get("/v1/models/m").status(), 200);
  EXPECT_EQ(get("/v1/models/none").status(), 404);
  EXPECT_EQ(get("/nothing").status(), 404);
  EXPECT_EQ(get("/v1/chat/completions").status(), 405);
  EXPECT_NE(get("/metrics").body.find("kvring_replica_up"), std::string::npos);
  ASSERT_TRUE(client.Send(PostBody("B", "", "/admin/v1/echo")));
  EXPECT_EQ(ReadAnswer(client).body, "{\"loopback\":true,\"body\":\"B\"}");
  ASSERT_TRUE(client.Send(PostBody("{\"model\":\"other\",\"messages\":[]}")));
  const Answer unknown = ReadAnswer(client);
  EXPECT_EQ(unknown.status(), 404);
  EXPECT_NE(unknown.body.find("model_not_found"), std::string::npos);
  ASSERT_TRUE(client.Send(PostBody("{\"model\":")));
  EXPECT_EQ(ReadAnswer(client).status(), 400);
  EXPECT_EQ(upstream.count(), 0);
}

}  // namespace
}  // namespace kvring::router
