#include "common/net/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/absl_view.h"
#include "common/net/http_client.h"
#include "tests/unit/common/net/raw_socket.h"

namespace kvring::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::RawSocket;

std::unique_ptr<HttpServer> Serve(HttpServer::Handler handler, HttpServerOptions options = {}) {
  auto server = HttpServer::Start(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return std::move(server).value();
}

void Echo(HttpRequest request, ResponseWriter writer) {
  writer.Reply(200, {{"X-Method", request.method}, {"X-Target", request.target}}, request.body);
}

std::string Post(std::string_view body, std::string_view lines = "") {
  return absl::StrCat("POST /p HTTP/1.1\r\nHost: a\r\n", Absl(lines), "Content-Length: ", body.size(),
                      "\r\n\r\n", Absl(body));
}

TEST(HttpServer, KeepAlive_ServesRequestsInOrder_AlsoPipelined) {
  auto server = Serve(Echo);
  RawSocket client = RawSocket::Connect(server->port());
  std::string all;
  for (int i = 0; i < 200; ++i) all += Post(absl::StrCat("body-", i));
  ASSERT_TRUE(client.Send(all));
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(client.ReadResponse().ends_with(absl::StrCat("\r\n\r\nbody-", i)));
  ASSERT_TRUE(client.Send(Post("last")));
  EXPECT_TRUE(client.ReadResponse().ends_with("last"));
}

TEST(HttpServer, RequestCutAtEveryByte_IsTheSame) {
  auto server = Serve(Echo);
  RawSocket client = RawSocket::Connect(server->port());
  const std::string wire =
      "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (size_t at = 1; at < wire.size(); ++at) {
    ASSERT_TRUE(client.Send(wire.substr(0, at)));
    ASSERT_TRUE(client.Send(wire.substr(at)));
    EXPECT_TRUE(client.ReadResponse().ends_with("\r\n\r\nabcde")) << at;
  }
}

TEST(HttpServer, Http10AndHead_AreAnsweredByTheirRules) {
  auto server = Serve(Echo);
  RawSocket old = RawSocket::Connect(server->port());
  ASSERT_TRUE(old.Send("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_NE(old.ReadAll().find("Connection: close\r\n"), std::string::npos);
  RawSocket head = RawSocket::Connect(server->port());
  ASSERT_TRUE(head.Send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(head.ReadAll().ends_with("\r\n\r\n"));
}

TEST(HttpServer, Expect_IsAnsweredBeforeTheBody) {
  auto server = Serve(Echo);
  RawSocket client = RawSocket::Connect(server->port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("hi"));
  EXPECT_TRUE(client.ReadResponse().ends_with("\r\n\r\nhi"));
}

TEST(HttpServer, PRX22_BodyLimit_DeclaredAndChunked) {
  HttpServerOptions options;
  options.max_body_bytes = 3 << 20;
  std::atomic<int> handled{0};
  auto server = Serve(
      [&](HttpRequest request, ResponseWriter writer) {
        ++handled;
        writer.Reply(200, {}, std::to_string(request.body.size()));
      },
      options);
  const std::string full((3 << 20), 'x');
  HttpClient client({.host = "127.0.0.1", .port = server->port()});
  const auto fits = client.Send("POST", "/", {}, full);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(fits->body, std::to_string(full.size()));
  const auto over = client.Send("POST", "/", {}, full + "y");
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_EQ(over->status, 413);
  EXPECT_NE(over->body.find("\"code\":\"request_too_large\""), std::string::npos);
  // Declared: refused before the body is sent.
  RawSocket declared = RawSocket::Connect(server->port());
  ASSERT_TRUE(declared.Send(
      absl::StrCat("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ", full.size() + 1, "\r\n\r\n")));
  EXPECT_TRUE(declared.ReadResponse().starts_with("HTTP/1.1 413 "));
  RawSocket chunked = RawSocket::Connect(server->port());
  ASSERT_TRUE(chunked.Send(absl::StrCat(
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n300001\r\n", full, "y\r\n0\r\n\r\n")));
  EXPECT_TRUE(chunked.ReadResponse().starts_with("HTTP/1.1 413 "));
  EXPECT_EQ(handled, 1);
}

TEST(HttpServer, SEC09_SlowHeader_Gets408_SlowBodyToo) {
  HttpServerOptions options;
  options.header_timeout = milliseconds(300);
  auto server = Serve(Echo, options);
  RawSocket slow = RawSocket::Connect(server->port());
  ASSERT_TRUE(slow.Send("GET / HT"));
  EXPECT_TRUE(slow.ReadAll().starts_with("HTTP/1.1 408 "));
  RawSocket dribble = RawSocket::Connect(server->port());
  ASSERT_TRUE(dribble.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{"));
  EXPECT_TRUE(dribble.ReadAll().starts_with("HTTP/1.1 408 "));
  RawSocket large = RawSocket::Connect(server->port());
  ASSERT_TRUE(large.Send("GET / HTTP/1.1\r\nX: " + std::string(70'000, 'a')));
  EXPECT_TRUE(large.ReadAll().starts_with("HTTP/1.1 431 "));
}

TEST(HttpServer, SEC09_AtTheCap_TheLongestIdleIsClosedFirst) {
  HttpServerOptions options;
  options.max_connections = 3;
  auto server = Serve(Echo, options);
  std::vector<RawSocket> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(RawSocket::Connect(server->port()));
    ASSERT_TRUE(idle.back().Send(Post("x")));
    ASSERT_TRUE(idle.back().ReadResponse().ends_with("x"));
  }
  RawSocket fourth = RawSocket::Connect(server->port());
  ASSERT_TRUE(fourth.Send(Post("y")));
  EXPECT_TRUE(fourth.ReadResponse().ends_with("y"));
  EXPECT_TRUE(idle[0].ClosedWithin(seconds(5)));
  ASSERT_TRUE(idle[2].Send(Post("z")));
  EXPECT_TRUE(idle[2].ReadResponse().ends_with("z"));
  EXPECT_LE(server->connections(), 3u);
}

TEST(ResponseWriter, StreamFromAnotherThread_ArrivesChunkedAndInOrder) {
  std::thread engine;
  auto server = Serve([&](HttpRequest, ResponseWriter writer) {
    engine = std::thread([writer = std::move(writer)]() mutable {
      writer.Start(200, {{"Content-Type", "text/event-stream"}});
      for (int i = 0; i < 100; ++i)
        EXPECT_NE(writer.Write(absl::StrCat("data: ", i, "\n\n")), WriteState::kGone);
      writer.Finish();
    });
  });
  HttpClient client({.host = "127.0.0.1", .port = server->port()});
  std::string body;
  const auto response = client.Stream("GET", "/", {}, {}, [&](std::string_view bytes) {
    body += bytes;
    return true;
  });
  engine.join();
  ASSERT_TRUE(response.ok()) << response.status();
  std::string expected;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&expected, "data: ", i, "\n\n");
  EXPECT_EQ(body, expected);
}

class Leaving : public testing::TestWithParam<bool> {};

TEST_P(Leaving, PRX06_ClientThatLeaves_IsToldOnce_AndLaterWritesDoNothing) {
  absl::Notification gone;
  std::atomic<int> calls{0};
  std::unique_ptr<ResponseWriter> kept;
  auto server = Serve([&](HttpRequest, ResponseWriter writer) {
    kept = std::make_unique<ResponseWriter>(std::move(writer));
    kept->OnDisconnect([&] {
      if (++calls == 1) gone.Notify();
    });
    kept->Start(200, {});
    kept->Write("first");
  });
  RawSocket client = RawSocket::Connect(server->port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  client.ReadUntil("first");
  if (GetParam()) {
    client.Reset();
  } else {
    client.Close();
  }
  ASSERT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(1)));
  EXPECT_EQ(kept->Write("second"), WriteState::kGone);
  EXPECT_TRUE(kept->gone());
  bool at_once = false;
  kept->OnDisconnect([&] { at_once = true; });
  EXPECT_TRUE(at_once);
  kept->Finish();
  server->Stop(seconds(5));
  EXPECT_EQ(calls, 1);
}

INSTANTIATE_TEST_SUITE_P(FinAndRst, Leaving, testing::Bool());

TEST(ResponseWriter, SlowReader_CongestsThenDrains_AndIsCutAtTheBound) {
  HttpServerOptions options;
  options.congested_bytes = 64 << 10;
  options.max_buffered_bytes = 1 << 20;
  std::unique_ptr<ResponseWriter> kept;
  absl::Notification begun;
  absl::Notification drained;
  auto server = Serve(
      [&](HttpRequest, ResponseWriter writer) {
        kept = std::make_unique<ResponseWriter>(std::move(writer));
        kept->OnDrained([&] {
          if (!drained.HasBeenNotified()) drained.Notify();
        });
        kept->Start(200, {});
        begun.Notify();
      },
      options);
  RawSocket client = RawSocket::Connect(server->port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  begun.WaitForNotification();
  const std::string chunk(16 << 10, 'x');
  WriteState state = WriteState::kOpen;
  size_t written = 0;
  while (state == WriteState::kOpen && written < (size_t{64} << 20)) {
    state = kept->Write(chunk);
    written += chunk.size();
  }
  ASSERT_EQ(state, WriteState::kCongested);
  size_t read = 0;
  while (!drained.HasBeenNotified() && read < 2 * written)
    read += client.ReadUntil("\x01", milliseconds(20)).size();
  EXPECT_TRUE(drained.WaitForNotificationWithTimeout(absl::Seconds(5)));
  absl::Notification gone;
  kept->OnDisconnect([&] { gone.Notify(); });
  for (int i = 0; i < 100'000 && state != WriteState::kGone; ++i) state = kept->Write(chunk);
  EXPECT_EQ(state, WriteState::kGone);
  EXPECT_TRUE(gone.WaitForNotificationWithTimeout(absl::Seconds(5)));
}

TEST(ResponseWriter, DroppedUnanswered_Gives500_DroppedInTheMiddle_CutsTheTransfer) {
  auto server = Serve([](HttpRequest request, ResponseWriter writer) {
    if (request.target == "/half") {
      writer.Start(200, {});
      writer.Write("half");
    }
  });
  HttpClient client({.host = "127.0.0.1", .port = server->port()});
  EXPECT_EQ(client.Get("/none")->status, 500);
  const auto half = client.Get("/half");
  EXPECT_TRUE(absl::IsUnavailable(half.status())) << half.status();
}

TEST(HttpServer, Stop_LetsRunningRequestsFinish_ThenCutsTheRest) {
  std::vector<ResponseWriter> writers;
  absl::Mutex mutex;
  auto server = Serve([&](HttpRequest, ResponseWriter writer) {
    absl::MutexLock lock(&mutex);
    writers.push_back(std::move(writer));
  });
  RawSocket finishing = RawSocket::Connect(server->port());
  RawSocket cut = RawSocket::Connect(server->port());
  RawSocket idle = RawSocket::Connect(server->port());
  ASSERT_TRUE(finishing.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  {
    absl::MutexLock lock(&mutex);
    const auto came = [&] { return writers.size() == 1; };
    mutex.Await(absl::Condition(&came));
  }
  ASSERT_TRUE(cut.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  {
    absl::MutexLock lock(&mutex);
    const auto came = [&] { return writers.size() == 2; };
    mutex.Await(absl::Condition(&came));
  }
  std::thread stop([&] { server->Stop(milliseconds(700)); });
  EXPECT_TRUE(idle.ClosedWithin(seconds(5)));
  writers[0].Reply(200, {}, "done");
  const std::string answer = finishing.ReadAll();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_TRUE(answer.ends_with("done")) << answer;
  EXPECT_EQ(cut.ReadAll(), "");
  stop.join();
  EXPECT_FALSE(RawSocket::Connect(server->port()).open());
  writers.clear();
}

TEST(HttpServer, PortInUse_IsAnErrorThatNamesIt_AndManyThreadsShareOnePort) {
  HttpServerOptions options;
  options.threads = 3;
  auto server = Serve(Echo, options);
  for (int i = 0; i < 20; ++i) {
    HttpClient client({.host = "127.0.0.1", .port = server->port()});
    EXPECT_EQ(client.Send("POST", "/", {}, "x")->body, "x");
  }
  options.listen = server->address();
  const auto second = HttpServer::Start(options, Echo);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(server->address()), absl::string_view::npos);
}

}  // namespace
}  // namespace kvring::net
