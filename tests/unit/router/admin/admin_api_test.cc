#include "router/admin/admin_api.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "common/runtime/clock.h"

namespace kvring::router {
namespace {

namespace json = boost::json;

class AdminApiTest : public ::testing::Test {
 protected:
  net::HttpResponse Send(std::string method, std::string target, std::string body = "") {
    net::HttpRequest request{
        .method = std::move(method), .target = std::move(target), .body = std::move(body)};
    request.peer_is_loopback = true;
    return *api_.Handle(request);
  }
  json::object Json(const net::HttpResponse& response) { return json::parse(response.body).as_object(); }
  json::object Get(std::string target) { return Json(Send("GET", std::move(target))); }

  ReplicaId Up(const std::string& url) {
    const ReplicaId id = router_->AddReplica({.url = url}, Now());
    router_->OnReplicaFacts(id,
                            {.epoch = {0xabc},
                             .models = {"m"},
                             .kv_tokens = 4096,
                             .kv_source = CapacitySource::kRegistered,
                             .block_size = 16},
                            Now());
    return id;
  }
  void Serve(uint64_t id, std::string name, OutcomeClass outcome) {
    router_->OnRequest({.id = {id}, .name = name, .model = "m"}, Now());
    router_->OnDispatch({id}, Now());
    CompletionReport report{.outcome = outcome};
    if (outcome == OutcomeClass::kOk)
      report.usage = UsageReport{.prompt_tokens = 100, .completion_tokens = 7, .cached_tokens = 64};
    router_->OnComplete({id}, report, Now());
  }

  std::unique_ptr<Router> router_ = Router::Create({.policy = "least-requests", .seed = 1});
  AdminApi api_{[this](absl::FunctionRef<void(Router&)> work) { work(*router_); }, {}};
};

TEST_F(AdminApiTest, OtherRoutes_AreNotItsOwn) {
  EXPECT_FALSE(api_.Handle({.method = "GET", .target = "/v1/models"}));
  EXPECT_FALSE(api_.Handle({.method = "GET", .target = "/metrics"}));
  EXPECT_EQ(Send("GET", "/admin/v1/nothing").status, 404);
}

TEST_F(AdminApiTest, Sec04_WithoutKeysOnlyTheSocketMakesACallerLocal) {
  net::HttpRequest request{.method = "GET",
                           .target = "/admin/v1/replicas",
                           .headers = {{"X-Forwarded-For", "127.0.0.1"},
                                       {"X-Real-IP", "127.0.0.1"},
                                       {"Forwarded", "for=127.0.0.1"},
                                       {"Host", "localhost"}},
                           .peer = "10.0.0.9:40000"};
  EXPECT_EQ(api_.Handle(request)->status, 403);
  request.target = "/dashboard";
  EXPECT_EQ(api_.Handle(request)->status, 403);
  const AdminApi keyed([this](absl::FunctionRef<void(Router&)> work) { work(*router_); },
                       {.keys_configured = [] { return true; }});
  EXPECT_EQ(keyed.Handle(request)->status, 200);
}

TEST_F(AdminApiTest, Backends_AddListRemove) {
  EXPECT_EQ(Send("POST", "/admin/v1/backends", R"({"url":"http://127.0.0.1:21008"})").status, 201);
  EXPECT_EQ(Send("POST", "/admin/v1/backends", R"({"url":"HTTP://127.0.0.1:21008/"})").status, 200);
  EXPECT_EQ(Send("POST", "/admin/v1/backends",
                 R"({"url":"grpc://127.0.0.1:9001","kv_tokens":512,"weight":2,"models":["m"]})")
                .status,
            201);
  const json::array backends = Get("/admin/v1/backends").at("backends").as_array();
  ASSERT_EQ(backends.size(), 2u);
  EXPECT_EQ(backends[0].at("url"), "http://127.0.0.1:21008");
  EXPECT_EQ(backends[1].at("weight").to_number<double>(), 2);
  EXPECT_EQ(router_->Replicas(Now())[1].kv_capacity_tokens, 512);
  EXPECT_EQ(Send("DELETE", "/admin/v1/backends?url=http%3A%2F%2F127.0.0.1%3A21008").status, 200);
  EXPECT_EQ(Send("DELETE", "/admin/v1/backends?url=http%3A%2F%2F127.0.0.1%3A21008").status, 404);
  EXPECT_EQ(Get("/admin/v1/backends").at("backends").as_array().size(), 1u);
}

TEST_F(AdminApiTest, Backends_BadBodiesNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"url":5})", "url"},
      {R"({"url":"ftp://a:1"})", "url"},
      {R"({"url":"127.0.0.1:80"})", "url"},
      {R"({})", "url"},
      {R"({"url":"http://a:1","weight":-1})", "weight"},
      {R"({"url":"http://a:1","kv_tokens":-1})", "kv_tokens"},
      {R"({"url":"http://a:1","models":"m"})", "models"},
      {R"({"url":"http://a:1","colour":1})", "colour"}};
  for (const auto& [body, field] : cases) {
    const net::HttpResponse response = Send("POST", "/admin/v1/backends", body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(Json(response).at("error").at("param"), field) << body;
  }
  EXPECT_EQ(Send("POST", "/admin/v1/backends", "[").status, 400);
  EXPECT_EQ(Send("PUT", "/admin/v1/backends").status, 405);
  EXPECT_TRUE(router_->Replicas(Now()).empty());
}

TEST_F(AdminApiTest, Replicas_ShowWhatTheCoreBelieves) {
  Up("grpc://127.0.0.1:9001");
  Serve(1, "r1", OutcomeClass::kOk);
  const json::object replica = Get("/admin/v1/replicas").at("replicas").at(0).as_object();
  EXPECT_EQ(replica.at("state"), "up");
  EXPECT_EQ(replica.at("epoch"), "0000000000000abc");
  EXPECT_EQ(replica.at("kv_capacity_source"), "registered");
  EXPECT_EQ(replica.at("in_flight"), 0);
  EXPECT_EQ(replica.at("requests").to_number<int>(), 1);
  EXPECT_DOUBLE_EQ(replica.at("hit_rate").to_number<double>(), 0.64);
}

TEST_F(AdminApiTest, Obs08_DecisionsAndWhyTellTheSameStory) {
  Up("grpc://127.0.0.1:9001");
  for (uint64_t i = 1; i <= 3; ++i) Serve(i, "r" + std::to_string(i), OutcomeClass::kOk);
  const json::array decisions = Get("/admin/v1/decisions?limit=2").at("decisions").as_array();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].at("request_id"), "r3");
  json::object why = Get("/admin/v1/why/r3");
  EXPECT_EQ(why.at("replica"), Get("/admin/v1/replicas").at("replicas").at(0).at("id"));
  EXPECT_EQ(why.at("reason"), decisions[0].at("reason"));
  EXPECT_EQ(why.at("cached_tokens"), 64);
  EXPECT_EQ(why.at("outcome"), "ok");
  EXPECT_EQ(Send("GET", "/admin/v1/why/never").status, 404);
  for (const char* bad : {"0", "-1", "x", "10001", ""})
    EXPECT_EQ(Send("GET", std::string("/admin/v1/decisions?limit=") + bad).status, 400) << bad;
}

TEST_F(AdminApiTest, Health_IsNeverSilent) {
  EXPECT_EQ(Get("/admin/v1/health").at("status"), "degraded");
  const ReplicaId id = Up("grpc://127.0.0.1:9001");
  EXPECT_EQ(Get("/admin/v1/health").at("status"), "ok");
  for (int i = 0; i < 3; ++i) router_->OnProbe(id, false, Now());
  const json::object health = Get("/admin/v1/health");
  EXPECT_EQ(health.at("status"), "degraded");
  EXPECT_EQ(health.at("replicas_up"), 0);
  EXPECT_NE(std::string(health.at("warnings").at(0).as_string()).find("down"), std::string::npos);
}

TEST_F(AdminApiTest, Drain_ThereAndBack) {
  Up("grpc://127.0.0.1:9001");
  EXPECT_EQ(Json(Send("POST", "/admin/v1/drain", R"({"replica":"grpc://127.0.0.1:9001"})")).at("state"),
            "draining");
  EXPECT_EQ(Json(Send("POST", "/admin/v1/drain", R"({"replica":"grpc://127.0.0.1:9001","undrain":true})"))
                .at("state"),
            "up");
  EXPECT_EQ(Send("POST", "/admin/v1/drain", R"({"replica":"r-none"})").status, 404);
  EXPECT_EQ(Send("POST", "/admin/v1/drain", R"({"undrain":true})").status, 400);
  EXPECT_EQ(Send("GET", "/admin/v1/drain").status, 405);
}

TEST_F(AdminApiTest, Obs06_OutcomesAddUpToRequests) {
  Up("grpc://127.0.0.1:9001");
  uint64_t id = 0;
  for (int i = 0; i < kOutcomeClasses; ++i) Serve(++id, "", static_cast<OutcomeClass>(i));
  const json::object stats = Get("/admin/v1/stats");
  uint64_t sum = 0;
  for (const auto& outcome : stats.at("outcomes").as_object()) {
    EXPECT_EQ(outcome.value().to_number<uint64_t>(), 1u) << outcome.key();
    sum += outcome.value().to_number<uint64_t>();
  }
  EXPECT_EQ(sum, stats.at("requests").to_number<uint64_t>());
  EXPECT_EQ(sum, uint64_t{kOutcomeClasses});
}

TEST_F(AdminApiTest, Policy_AndThoseThereAre) {
  const json::object policy = Get("/admin/v1/policy");
  EXPECT_EQ(policy.at("policy"), "least-requests");
  EXPECT_GE(policy.at("policies").as_array().size(), 7u);
}

TEST_F(AdminApiTest, Dashboard_LoadsNothingFromElsewhere) {
  const net::HttpResponse page = Send("GET", "/dashboard");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  for (const char* outside : {"http://", "https://", "src=", "@import", "url(", "innerHTML"}) {
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.body.find("prefers-color-scheme:dark"), std::string::npos);
}

}  // namespace
}  // namespace kvring::router
