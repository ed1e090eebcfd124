#include "common/net/http_client.h"

#include <gtest/gtest.h>

#include <atomic>

#include "common/net/http_server.h"
#include "tests/unit/common/net/raw_socket.h"

namespace kvring::net {
namespace {

using std::chrono::milliseconds;

TEST(HttpClient, KeptConnectionClosedMeanwhile_IsReplaced) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(1);
  auto server =
      HttpServer::Start(options, [](HttpRequest, ResponseWriter writer) { writer.Reply(200, {}, "ok"); });
  ASSERT_TRUE(server.ok());
  HttpClient client({.host = "127.0.0.1", .port = (*server)->port()});
  EXPECT_EQ(client.Get("/")->body, "ok");
  for (int i = 0; i < 10'000'000 && (*server)->connections() > 0; ++i) std::this_thread::yield();
  EXPECT_EQ(client.Get("/")->body, "ok");
}

TEST(HttpClient, Refused_Timeout_TooLarge_AreToldApart) {
  auto server = HttpServer::Start({}, [](HttpRequest request, ResponseWriter writer) {
    static std::vector<ResponseWriter> never;
    if (request.target == "/never") return never.push_back(std::move(writer));
    writer.Reply(200, {}, std::string(100, 'x'));
  });
  ASSERT_TRUE(server.ok());
  const Address address{.host = "127.0.0.1", .port = (*server)->port()};
  HttpClient impatient(address, {.timeout = milliseconds(100)});
  EXPECT_TRUE(absl::IsDeadlineExceeded(impatient.Get("/never").status()));
  HttpClient small(address, {.max_body_bytes = 99});
  EXPECT_TRUE(absl::IsResourceExhausted(small.Get("/").status()));
  HttpClient picky(address);
  EXPECT_TRUE(
      absl::IsCancelled(picky.Stream("GET", "/", {}, {}, [](std::string_view) { return false; }).status()));
  (*server)->Stop(Duration(0));
  HttpClient late(address);
  EXPECT_TRUE(absl::IsUnavailable(late.Get("/").status()));
}

TEST(QueryParameter, IsDecoded) {
  EXPECT_EQ(QueryParameter("/a?limit=5&x=%41+b", "limit"), "5");
  EXPECT_EQ(QueryParameter("/a?limit=5&x=%41+b", "x"), "A b");
  EXPECT_EQ(QueryParameter("/a?flag", "flag"), "");
  EXPECT_EQ(QueryParameter("/a?limit=5", "x"), std::nullopt);
  EXPECT_EQ(QueryParameter("/a", "x"), std::nullopt);
}

}  // namespace
}  // namespace kvring::net
