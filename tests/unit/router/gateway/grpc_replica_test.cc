// The whole way with the real replica and the real model: what a client gets through the router over gRPC to
// the replica is what the replica's own HTTP service answers, and the core's prediction is what the engine
// says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "common/net/http_client.h"
#include "replica/server/grpc_service.h"
#include "replica/server/replica_server.h"
#include "router/gateway/gateway.h"
#include "router/gateway/grpc_front.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/grpc_scripted_replica.h"

namespace kvring::router {
namespace {

std::string ModelPath() {
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// Ids and times differ from answer to answer.
std::string Plain(std::string text) {
  text = std::regex_replace(text, std::regex("cmpl-[0-9a-f]{16}"), "cmpl-ID");
  return std::regex_replace(text, std::regex("\"created\":[0-9]+"), "\"created\":0");
}

net::Address AddressOf(const std::string& text) { return *net::ParseAddress(text); }

// A router before one replica.
struct RouterBeside {
  explicit RouterBeside(const std::string& grpc_address) {
    guard.With([&](Router& router) { router.AddReplica({.url = "grpc://" + grpc_address}, Now()); });
    gateway = Gateway::Start({}, guard, metrics, fleet.Upstreams(), {});
  }

  RouterGuard guard{Router::Create({.policy = "cache-aware", .seed = 1})};
  MetricRegistry metrics;
  GrpcFleet fleet{guard};
  absl::StatusOr<std::unique_ptr<Gateway>> gateway{absl::UnknownError("not started")};
};

// A client has its answer before the core hears that it is complete.
void AwaitLastDecision(RouterGuard& guard) {
  ASSERT_TRUE(Eventually(
      [&] { return guard.With([](Router& router) { return router.RecentDecisions(1)[0].complete; }); }));
}

TEST(GrpcReplica, RealModel_SameBytesAsTheReplicasOwnHttp_AndExactPrediction) {
  if (!std::filesystem::exists(ModelPath())) GTEST_SKIP() << "no model at " << ModelPath();
  auto server = replica::ReplicaServer::Start({.model_path = ModelPath(), .kv_tokens = 4096});
  ASSERT_TRUE(server.ok()) << server.status();
  RouterBeside beside((*server)->grpc_address());
  ASSERT_TRUE(beside.gateway.ok()) << beside.gateway.status();
  RouterGuard& guard = beside.guard;
  ASSERT_TRUE(Eventually([&] {
    return guard.With([](Router& router) { return router.Replicas(Now())[0].state; }) == ReplicaState::kUp;
  }));
  net::HttpClient direct(AddressOf((*server)->http_address()));
  net::HttpClient routed({"127.0.0.1", (*beside.gateway)->port()});
  const std::string story =
      "Once upon a time a fox and a hen lived beside the river and talked of the weather every single day.";
  const std::string head =
      R"({"messages":[{"role":"user","content":")" + story + R"("}],"max_tokens":24,"temperature":0)";
  for (const char* tail :
       {R"(})", R"(,"stream":true})", R"(,"stream":true,"stream_options":{"include_usage":true}})",
        R"(,"logprobs":true,"top_logprobs":2})", R"(,"n":2,"temperature":3})", R"(,"max_tokens":-1})"}) {
    const std::string body = head + tail;
    ASSERT_TRUE(
        direct.Send("POST", "/v1/chat/completions", {}, body).ok());  // both runs below find the same cache
    const auto expected = direct.Send("POST", "/v1/chat/completions", {}, body);
    const auto answer = routed.Send("POST", "/v1/chat/completions", {}, body);
    ASSERT_TRUE(expected.ok() && answer.ok());
    EXPECT_EQ(answer->status, expected->status);
    EXPECT_EQ(answer->header("content-type"), expected->header("content-type"));
    EXPECT_EQ(Plain(answer->body), Plain(expected->body)) << tail;
  }
  AwaitLastDecision(guard);
  const auto records = guard.With([](Router& router) { return router.RecentDecisions(4); });
  EXPECT_TRUE(records[3].decision.prediction_exact);
  EXPECT_EQ(records[3].decision.predicted_cached_tokens, records[3].cached_tokens);
  EXPECT_GT(records[3].cached_tokens, 0);
  (*beside.gateway)->Stop(Duration(0));
}

// A router that starts beside a replica with a warm cache: token prompts are predicted exactly from the
// first.
TEST(GrpcReplica, PFX_11_RouterRestarts_CacheIsKnownFromTheSnapshot) {
  if (!std::filesystem::exists(ModelPath())) GTEST_SKIP() << "no model at " << ModelPath();
  auto server = replica::ReplicaServer::Start({.model_path = ModelPath(), .kv_tokens = 4096});
  ASSERT_TRUE(server.ok()) << server.status();
  std::string ids;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&ids, i == 0 ? "" : ",", 1000 + i);
  const std::string body = "{\"prompt\":[" + ids + "],\"max_tokens\":2,\"temperature\":0}";
  net::HttpClient direct(AddressOf((*server)->http_address()));
  ASSERT_EQ(direct.Send("POST", "/v1/completions", {}, body)->status, 200);
  RouterBeside beside((*server)->grpc_address());
  ASSERT_TRUE(beside.gateway.ok()) << beside.gateway.status();
  RouterGuard& guard = beside.guard;
  ASSERT_TRUE(Eventually([&] {
    return guard.With([](Router& router) { return router.Replicas(Now())[0].events.state; }) ==
           EventsState::kWhole;
  }));
  net::HttpClient routed({"127.0.0.1", (*beside.gateway)->port()});
  const auto answer = routed.Send("POST", "/v1/completions", {}, body);
  ASSERT_TRUE(answer.ok());
  AwaitLastDecision(guard);
  const auto record = guard.With([](Router& router) { return router.RecentDecisions(1)[0]; });
  EXPECT_EQ(record.decision.predicted_cached_tokens, 192);
  EXPECT_EQ(record.cached_tokens, 192);
  (*beside.gateway)->Stop(Duration(0));
}

}  // namespace
}  // namespace kvring::router
