// The HTTP gateway and the gRPC front over scripted replicas of both kinds.
#include "router/gateway/grpc_front.h"

#include <gtest/gtest.h>

#include "common/net/http_client.h"
#include "kvring/v1/admin.grpc.pb.h"
#include "kvring/v1/fleet.grpc.pb.h"
#include "router/gateway/gateway.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/grpc_scripted_replica.h"
#include "tests/unit/router/gateway/scripted_upstream.h"

namespace kvring::router {
namespace {

using kvring::test::RawSocket;
using kvring::test::ScriptedUpstream;
using test::ScriptedReplica;

constexpr char kChat[] = R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true})";

class GrpcFrontTest : public ::testing::Test {
 protected:
  ~GrpcFrontTest() override {
    if (gateway_) gateway_->Stop(Duration(0));
    if (front_) front_->Stop(Duration(0));
    front_.reset();
    gateway_.reset();
  }
  void Start(const std::vector<std::string>& urls, GrpcFrontOptions options = {}, GrpcFrontHooks hooks = {}) {
    guard_.With([&](Router& router) {
      for (const std::string& url : urls) router.AddReplica({.url = url, .models = {"m"}}, Now());
    });
    fleet_ =
        std::make_unique<GrpcFleet>(guard_, ExchangeOptions{.probe_interval = std::chrono::milliseconds(50)});
    auto gateway = Gateway::Start({.timeouts = options.timeouts}, guard_, metrics_, fleet_->Upstreams(), {});
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    auto front = GrpcFront::Start(options, guard_, *fleet_, metrics_, std::move(hooks));
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
    channel_ = grpc::CreateChannel(front_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::Inference::NewStub(channel_);
    ASSERT_TRUE(Eventually([&] { return Up() == urls.size(); }));
  }
  std::vector<ReplicaView> Views() {
    return guard_.With([](Router& router) { return router.Replicas(Now()); });
  }
  size_t Up() {
    size_t up = 0;
    for (const ReplicaView& view : Views()) up += view.state == ReplicaState::kUp ? 1 : 0;
    return up;
  }
  int InFlight() {
    int sum = 0;
    for (const ReplicaView& view : Views()) sum += view.in_flight;
    return sum;
  }
  uint64_t Failures() {
    uint64_t sum = 0;
    for (const ReplicaView& view : Views()) sum += view.failures;
    return sum;
  }
  net::HttpResponse Post(const std::string& body, const std::string& path = "/v1/chat/completions") {
    net::HttpClient client({"127.0.0.1", gateway_->port()});
    auto answer = client.Send("POST", path, {{"Content-Type", "application/json"}}, body);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : net::HttpResponse{};
  }
  struct Answer {
    std::vector<v1::GenerateResponse> events;
    std::string text;
    grpc::Status status;
  };
  Answer Generate(const v1::GenerateRequest& request, grpc::ClientContext& context) {
    Answer answer;
    auto reader = stub_->Generate(&context, request);
    for (v1::GenerateResponse event; reader->Read(&event);) {
      answer.text += event.delta().text();
      answer.events.push_back(event);
    }
    answer.status = reader->Finish();
    return answer;
  }
  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Generate(request, context);
  }
  static v1::GenerateRequest Text(const std::string& text) {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }

  MetricRegistry metrics_;
  RouterGuard guard_{Router::Create({.policy = "round-robin", .seed = 1})};
  std::unique_ptr<GrpcFleet> fleet_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<GrpcFront> front_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

// ---- HTTP client to gRPC replica ----

TEST_F(GrpcFrontTest, HttpClient_GetsSseFromAGrpcReplica_BodyGoesByteForByte) {
  ScriptedReplica replica(test::AnswerShort);
  Start({replica.url()});
  const net::HttpResponse answer = Post(kChat);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("content-type"), "text/event-stream");
  EXPECT_NE(answer.body.find(R"("content":"Hel")"), std::string::npos) << answer.body;
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(answer.body.find("\"usage\""), std::string::npos);
  EXPECT_EQ(replica.last().request().openai_body().body(), kChat);
  EXPECT_EQ(replica.last().request().openai_body().route(), "/v1/chat/completions");
  EXPECT_EQ(InFlight(), 0);
  EXPECT_EQ(Views()[0].cached_tokens, 16u);
}

TEST_F(GrpcFrontTest, HttpClient_UsageChunkAndWholeAnswer) {
  ScriptedReplica replica(test::AnswerShort);
  Start({replica.url()});
  const std::string usage =
      R"("prompt_tokens":40,"completion_tokens":2,"total_tokens":42,"prompt_tokens_details":{"cached_tokens":16})";
  EXPECT_NE(
      Post(
          R"({"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}})")
          .body.find(usage),
      std::string::npos);
  const net::HttpResponse whole = Post(R"({"prompt":"x"})", "/v1/completions");
  EXPECT_EQ(whole.header("content-type"), "application/json");
  EXPECT_NE(whole.body.find(R"("text":"Hello")"), std::string::npos) << whole.body;
  EXPECT_NE(whole.body.find(usage), std::string::npos);
  EXPECT_NE(whole.body.find(R"("model":"m")"), std::string::npos);
}

TEST_F(GrpcFrontTest, Grp02_ErrorInTheFirstMessageIsTheClients) {
  ScriptedReplica replica([](const auto& request) {
    request.Send(test::Error(400, "bad temperature", "invalid_request_error"));
  });
  ScriptedReplica other([](const auto& request) {
    request.Send(test::Error(400, "bad temperature", "invalid_request_error"));
  });
  Start({replica.url(), other.url()});
  const net::HttpResponse answer = Post(kChat);
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("bad temperature"), std::string::npos);
  EXPECT_EQ(replica.requests() + other.requests(), 1);
  EXPECT_EQ(Failures(), 0u);
}

TEST_F(GrpcFrontTest, Grp02_ErrorInMidStreamIsInBand_OneMark_NoRetry) {
  const auto script = [](const ScriptedReplica::Request& request) {
    for (const char* text : {"a", "b", "c"}) request.Send(test::Delta(text));
    request.Send(test::Error(500, "engine broke"));
  };
  ScriptedReplica replica(script), other(script);
  Start({replica.url(), other.url()});
  const net::HttpResponse answer = Post(kChat);
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.body.find("engine broke"), std::string::npos);
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(replica.requests() + other.requests(), 1);
  EXPECT_EQ(Failures(), 1u);
}

TEST_F(GrpcFrontTest, HttpClient_FailureBeforeTheFirstDeltaGoesElsewhere) {
  ScriptedReplica bad([](const auto& request) { request.Send(test::Error(500, "broken")); });
  ScriptedReplica good(test::AnswerShort);
  Start({bad.url(), good.url()});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Post(kChat).status, 200);
  EXPECT_EQ(good.requests(), 2);
  EXPECT_EQ(bad.requests(), 1);
}

TEST_F(GrpcFrontTest, Grp08a_ClientGone_CancelsAtTheReplica) {
  ScriptedReplica replica([](const auto& request) { request.Send(test::Delta("a")); });
  Start({replica.url()});
  {
    RawSocket client = RawSocket::Connect(gateway_->port());
    client.Send(absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ",
                             sizeof kChat - 1, "\r\n\r\n", kChat));
    ASSERT_TRUE(Eventually([&] { return replica.requests() == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return replica.cancelled() == 1 && InFlight() == 0; }));
}

// It answers probes, but no request: by the bound of the first token both fronts leave it.
TEST_F(GrpcFrontTest, HungReplica_RequestsOfBothFrontsGoElsewhere) {
  ScriptedReplica hung([](const auto& request) { request.Send(test::Admitted(40, 0)); });
  ScriptedReplica good(test::AnswerShort);
  GrpcFrontOptions options;
  options.timeouts.first_byte = std::chrono::milliseconds(200);
  Start({hung.url(), good.url()}, options);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Post(kChat).status, 200);
    EXPECT_EQ(Generate(Text("x")).text, "Hello");
  }
  EXPECT_EQ(hung.requests(), 2);
  EXPECT_EQ(good.requests(), 4);
  EXPECT_EQ(Failures(), 2u);
  EXPECT_TRUE(Eventually([&] { return hung.cancelled() == 2 && InFlight() == 0; }));
}

// What breaks every replica that takes it is tried on two, not on all.
TEST_F(GrpcFrontTest, RequestThatKills_TakesDownTwoAtMost) {
  std::vector<std::unique_ptr<ScriptedReplica>> replicas;
  std::vector<std::string> urls;
  std::atomic<int> hit{0};
  for (int i = 0; i < 4; ++i) {
    replicas.push_back(std::make_unique<ScriptedReplica>([&](const auto&) { ++hit; }));
    urls.push_back(replicas.back()->url());
  }
  GrpcFrontOptions options;
  options.max_attempts = 4;
  options.timeouts.first_byte = std::chrono::milliseconds(100);
  Start(urls, options);
  EXPECT_EQ(Generate(Text("x")).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(hit, 2);
}

TEST_F(GrpcFrontTest, Grp03_LoadIsCounted_SplitIsEven) {
  ScriptedReplica one([](const auto& request) { request.Send(test::Delta("a")); });
  ScriptedReplica two([](const auto& request) { request.Send(test::Delta("a")); });
  Start({one.url(), two.url()});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 100; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Text(absl::StrCat("unique ", i))));
    v1::GenerateResponse first;
    ASSERT_TRUE(readers.back()->Read(&first));
  }
  EXPECT_EQ(InFlight(), 100);
  EXPECT_NEAR(one.requests(), 50, 5);
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return InFlight() == 0 && one.cancelled() + two.cancelled() == 100; }));
}

// ---- gRPC client ----

TEST_F(GrpcFrontTest, Generate_TakesAllFourInputs) {
  ScriptedReplica replica(test::AnswerShort);
  Start({replica.url()});
  v1::GenerateRequest ids, messages, body;
  for (int i = 0; i < 100; ++i) ids.mutable_token_ids()->add_ids(i);
  auto& turn = *messages.mutable_messages()->add_messages();
  turn.set_role("user");
  turn.set_content("hi");
  body.mutable_openai_body()->set_route("/v1/chat/completions");
  body.mutable_openai_body()->set_body(kChat);
  for (v1::GenerateRequest* request : {&ids, &messages, &body}) {
    const Answer answer = Generate(*request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.text, "Hello");
    EXPECT_EQ(answer.events.back().usage().cached_tokens(), 16);
    EXPECT_EQ(replica.last().request().input_case(), request->input_case());
  }
  EXPECT_EQ(Generate(Text("x")).text, "Hello");
  EXPECT_EQ(Generate(v1::GenerateRequest()).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  body.mutable_openai_body()->set_body("[");
  EXPECT_EQ(Generate(body).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcFrontTest, Obs08_MetadataTellsReplicaAndReason) {
  ScriptedReplica replica(test::AnswerShort);
  Start({replica.url()});
  grpc::ClientContext context;
  v1::GenerateRequest request = Text("x");
  request.set_request_id("my-request");
  ASSERT_TRUE(Generate(request, context).status.ok());
  const auto& metadata = context.GetServerInitialMetadata();
  ASSERT_TRUE(metadata.contains("x-kvring-replica"));
  EXPECT_EQ(metadata.find("x-kvring-replica")->second, Views()[0].name);
  EXPECT_EQ(metadata.find("x-request-id")->second, "my-request");
  const auto why = guard_.With([](Router& router) { return router.Why("my-request"); });
  ASSERT_TRUE(why);
  EXPECT_EQ(why->replica_name, Views()[0].name);
}

TEST_F(GrpcFrontTest, Generate_RetriesBeforeTheFirstDeltaOnly) {
  ScriptedReplica bad([](const auto& request) {
    request.Send(test::Admitted(4, 0));
    if (request.start.request().text() == "late") request.Send(test::Delta("a"));
    request.Send(test::Error(500, "broken"));
  });
  Start({bad.url()});
  ScriptedReplica good(test::AnswerShort);
  guard_.With([&](Router& router) { router.AddReplica({.url = good.url(), .models = {"m"}}, Now()); });
  ASSERT_TRUE(Eventually([&] { return Up() == 2; }));
  for (int i = 0; i < 2; ++i) {
    const Answer answer = Generate(Text("early"));
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.events.size(), 4u);  // one Admitted only
  }
  EXPECT_EQ(bad.requests(), 1);
  const int before = good.requests() + bad.requests();
  int failed = 0;
  for (int i = 0; i < 2; ++i)
    failed += Generate(Text("late")).status.error_code() == grpc::StatusCode::INTERNAL ? 1 : 0;
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(good.requests() + bad.requests(), before + 2);
  EXPECT_EQ(InFlight(), 0);
}

TEST_F(GrpcFrontTest, KilledReplica_RequestsWithoutADeltaGoElsewhere) {
  ScriptedReplica dies([](const auto&) {});
  Start({dies.url()});
  ScriptedReplica good(test::AnswerShort);
  Answer answer;
  std::thread client([&] { answer = Generate(Text("x")); });
  ASSERT_TRUE(Eventually([&] { return dies.requests() == 1; }));
  guard_.With([&](Router& router) { router.AddReplica({.url = good.url(), .models = {"m"}}, Now()); });
  ASSERT_TRUE(Eventually([&] { return Up() == 2; }));
  dies.Stop();
  client.join();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(good.requests(), 1);
}

TEST_F(GrpcFrontTest, Grp08b_DeadlineGoesToTheReplica_AndEndsThere) {
  ScriptedReplica replica([](const auto&) {});
  Start({replica.url()});
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_millis(300, GPR_TIMESPAN)));
  EXPECT_EQ(Generate(Text("x"), context).status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_GT(replica.last().timeout_ms(), 0u);
  EXPECT_LE(replica.last().timeout_ms(), 300u);
  EXPECT_TRUE(Eventually([&] { return replica.cancelled() == 1 && InFlight() == 0; }));
  EXPECT_EQ(Failures(), 0u);
}

TEST_F(GrpcFrontTest, Grp09_LongStatusIsCut) {
  std::string text;
  while (text.size() < 200 << 10) text += "\xC3\xA9";
  ScriptedReplica replica([&](const auto& request) { request.Send(test::Error(400, text)); });
  Start({replica.url()});
  const Answer answer = Generate(Text("x"));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // Each byte of it travels as three.
  EXPECT_LE(answer.status.error_message().size(), 4096u / 3);
  EXPECT_GE(answer.status.error_message().size(), 4096u / 3 - 2);
  EXPECT_EQ(answer.status.error_message(), text.substr(0, answer.status.error_message().size()));
}

TEST_F(GrpcFrontTest, Grp06_FrontNamesSizeAndLimit) {
  ScriptedReplica replica(test::AnswerShort);
  Start({replica.url()}, {.max_message_bytes = 4 << 20});
  const Answer answer = Generate(Text(std::string(5 << 20, 'x')));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(answer.status.error_message().find("4194304"), std::string::npos)
      << answer.status.error_message();
  EXPECT_EQ(replica.requests(), 0);
}

TEST_F(GrpcFrontTest, HttpReplica_SseBecomesDeltas_ErrorsBecomeStatuses) {
  std::string body;
  ScriptedUpstream replica([&](RawSocket& socket, const ScriptedUpstream::Request& request) {
    body = request.body;
    if (request.body.find("wrong") != std::string::npos) {
      const std::string error = R"({"error":{"message":"no such thing","type":"invalid_request_error"}})";
      socket.Send(absl::StrCat(
          "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: ", error.size(),
          "\r\n\r\n", error));
      return;
    }
    const std::string events =
        "data: {\"choices\":[{\"index\":0,\"text\":\"Hel\"}]}\n\n"
        "data: {\"choices\":[{\"index\":0,\"text\":\"lo\",\"finish_reason\":\"stop\"}]}\n\n"
        "data: "
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{"
        "\"cached_tokens\":4}}}\n\n"
        "data: [DONE]\n\n";
    socket.Send(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: ",
                             events.size(), "\r\n\r\n", events));
  });
  Start({absl::StrCat("http://127.0.0.1:", replica.port())});
  v1::GenerateRequest request = Text("x");
  request.mutable_sampling()->set_max_tokens(5);
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.text, "Hello");
  EXPECT_EQ(answer.events.back().usage().cached_tokens(), 4);
  EXPECT_EQ(
      body,
      R"({"model":"m","prompt":"x","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}})");
  const Answer wrong = Generate(Text("wrong"));
  EXPECT_EQ(wrong.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(wrong.status.error_message(), "no such thing");
  EXPECT_EQ(InFlight(), 0);
}

TEST_F(GrpcFrontTest, Refusals_SayWhy) {
  Start({});
  grpc::ClientContext context;
  EXPECT_EQ(Generate(Text("x"), context).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(context.GetServerTrailingMetadata().find("x-kvring-reason")->second, "no_endpoints");
  ScriptedReplica replica(test::AnswerShort);
  guard_.With([&](Router& router) { router.AddReplica({.url = replica.url(), .models = {"m"}}, Now()); });
  v1::GenerateRequest request = Text("x");
  request.set_model("other");
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcFrontTest, FleetAdminModelsAndKeys) {
  ScriptedReplica replica(test::AnswerShort);
  std::string registered;
  Start({replica.url()},
        {.access = std::make_shared<Access>(AccessRules{.keys = {{.name = "one", .key = "secret"}}})},
        {.on_register = [&](const std::string& address, Epoch,
                            std::vector<std::string>) -> absl::StatusOr<uint32_t> {
           registered = address;
           return 3000;
         },
         .why_json = [](std::string_view) { return std::optional<std::string>("{}"); }});
  const auto with_key = [](grpc::ClientContext& context) {
    context.AddMetadata("authorization", "Bearer secret");
  };
  const auto fleet = v1::Fleet::NewStub(channel_);
  const auto admin = v1::Admin::NewStub(channel_);
  v1::RegisterRequest request;
  request.set_address("127.0.0.1:1");
  v1::RegisterResponse response;
  {
    grpc::ClientContext context;
    EXPECT_EQ(fleet->Register(&context, request, &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(registered, "");
    EXPECT_EQ(Generate(Text("x")).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  grpc::ClientContext register_context, models_context, replicas_context, why_context;
  for (auto* context : {&register_context, &models_context, &replicas_context, &why_context})
    with_key(*context);
  ASSERT_TRUE(fleet->Register(&register_context, request, &response).ok());
  EXPECT_EQ(response.lease_ms(), 3000u);
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&models_context, {}, &models).ok());
  EXPECT_EQ(models.models(0).id(), "m");
  v1::ListReplicasResponse replicas;
  ASSERT_TRUE(admin->ListReplicas(&replicas_context, {}, &replicas).ok());
  EXPECT_EQ(replicas.replicas(0).kv_capacity_tokens(), 4096);
  EXPECT_EQ(replicas.replicas(0).kv_capacity_source(), "registered");
  v1::WhyResponse why;
  ASSERT_TRUE(admin->Why(&why_context, {}, &why).ok());
  EXPECT_EQ(why.json(), "{}");
}

}  // namespace
}  // namespace kvring::router
