// What the prober learns from an engine's own pages.
#include <gtest/gtest.h>

#include "router/gateway/engine_metrics.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/gateway_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kVllm =
    "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
    "# TYPE vllm:num_requests_running gauge\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"a{b}\\\"c\"} 3.0\n"
    "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 2.0\n"
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 7.0\n"
    "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",engine=\"0\",num_cpu_blocks=\"None\","
    "num_gpu_blocks=\"2048\",num_gpu_blocks_override=\"None\",sliding_window=\"None\"} 1.0\n"
    "process_start_time_seconds 1.76e+09\n";

TEST(EngineMetrics, Vllm_LoadCapacityAndStart) {
  const EngineMetrics metrics = ParseEngineMetrics(kVllm);
  EXPECT_EQ(metrics.running, 5);
  EXPECT_EQ(metrics.waiting, 7);
  EXPECT_EQ(metrics.kv_tokens, 32'768);
  EXPECT_EQ(metrics.block_size, 16);
  EXPECT_EQ(metrics.started_at, 1.76e9);
}

TEST(EngineMetrics, SglangAndLlamaCpp_UnderTheirNames) {
  const EngineMetrics sglang = ParseEngineMetrics(
      "sglang:num_running_reqs{model_name=\"m\"} 4\nsglang:num_queue_reqs{model_name=\"m\"} 1\n"
      "sglang:max_total_num_tokens{model_name=\"m\"} 120000.0\n");
  EXPECT_EQ(sglang.running, 4);
  EXPECT_EQ(sglang.waiting, 1);
  EXPECT_EQ(sglang.kv_tokens, 120'000);
  EXPECT_EQ(sglang.block_size, 0);
  const EngineMetrics llama =
      ParseEngineMetrics("llamacpp:requests_processing 2\r\nllamacpp:requests_deferred 0\r\n");
  EXPECT_EQ(llama.running, 2);
  EXPECT_EQ(llama.kv_tokens, 0);
}

TEST(EngineMetrics, AnythingElse_TellsNothing_NeverZero) {
  for (const char* page :
       {"", "{\"server_load\":7}", "{\"load\":7}", "vllm:num_requests_running", "vllm:num_requests_running{",
        "vllm:num_requests_running{a=\"}", "vllm:num_requests_running NaN\n",
        "vllm:num_requests_running -1\n", "vllm:num_requests_running 1e300\n",
        "vllm:num_requests_runningx 3\n",
        "vllm:cache_config_info{block_size=\"99999999999\",num_gpu_blocks=\"9223372036854775807\"} 1\n",
        "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"9223372036854775807\"} 1\n"}) {
    const EngineMetrics metrics = ParseEngineMetrics(page);
    EXPECT_FALSE(metrics.running.has_value()) << page;
    EXPECT_EQ(metrics.kv_tokens, 0) << page;
  }
}

class ProberTest : public testing::Test {
 protected:
  static GatewayOptions Quick() {
    GatewayOptions options;
    options.probes.interval = options.probes.timeout = milliseconds(100);
    return options;
  }
  ReplicaView View() { return fixture_.replicas().at(0); }

  test::ScriptedUpstream upstream_{[](test::RawSocket& socket, const test::ScriptedUpstream::Request&) {
    socket.Send(test::Json(200, "{}"));
  }};
  GatewayFixture fixture_{Quick()};
};

TEST_F(ProberTest, Metrics_GiveCapacityBlockSizeAndLoad_AndARestart) {
  upstream_.SetMetrics(std::string(kVllm));
  fixture_.Add(upstream_.url());
  fixture_.Start();
  ASSERT_TRUE(Eventually([&] { return !View().load_stale && View().kv_capacity_tokens > 0; }));
  EXPECT_EQ(View().kv_capacity_tokens, 32'768);
  EXPECT_EQ(View().kv_source, CapacitySource::kMetrics);
  EXPECT_EQ(View().block_size, 16);
  const Epoch before = View().epoch;
  std::string later(kVllm);
  later.replace(later.find("1.76e+09"), 8, "1.77e+09");
  upstream_.SetMetrics(later);
  EXPECT_TRUE(Eventually([&] { return View().epoch != before; }));
}

// Over connections that outlive the silence: tests/e2e, with a process that is stopped.
TEST_F(ProberTest, HLT_03_SilentReplica_IsUpAgainOnceItAnswers) {
  fixture_.Add(upstream_.url());
  fixture_.Start();
  const auto is = [&](ReplicaState state) { return Eventually([&] { return View().state == state; }); };
  ASSERT_TRUE(is(ReplicaState::kUp));
  upstream_.silent_to_probes = true;
  ASSERT_TRUE(is(ReplicaState::kDown));
  upstream_.silent_to_probes = false;
  EXPECT_TRUE(is(ReplicaState::kUp));
}

TEST_F(ProberTest, POL_15_LoadPageMissingOrOfAnotherShape_IsCountedAndSaid) {
  fixture_.Add(upstream_.url());
  fixture_.Start();
  const auto warns = [&](std::string_view part) {
    const auto warnings = fixture_.guard().With([](Router& router) { return router.Warnings(); });
    return !warnings.empty() && warnings[0].find(part) != std::string::npos;
  };
  EXPECT_TRUE(Eventually([&] { return warns("answers 404"); }));
  upstream_.SetMetrics("{\"server_load\":7}");
  EXPECT_TRUE(Eventually([&] { return warns("tells no requests running"); }));
  EXPECT_TRUE(View().load_stale);
  EXPECT_GE(View().load_errors, 2u);
  test::RawSocket client = fixture_.Connect();
  client.Send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string page = ReadAnswer(client).body;
  EXPECT_NE(page.find("kvring_replica_load_probe_errors{"), std::string::npos);
  EXPECT_NE(page.find("\nkvring_warnings 1"), std::string::npos);
}

}  // namespace
}  // namespace kvring::router
