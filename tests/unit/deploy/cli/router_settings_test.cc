#include "deploy/cli/router_settings.h"

#include <gtest/gtest.h>

#include "deploy/cli/router_config.h"

namespace kvring::cli {
namespace {

using std::chrono::milliseconds;

v1::RouterConfig Parse(const std::string& yaml) {
  auto config = ParseRouterConfig(yaml, "test");
  EXPECT_TRUE(config.ok()) << config.status();
  v1::RouterConfig filled = *config;
  FillDefaults(filled);
  return filled;
}

TEST(RouterSettings, Nothing_IsTheDefaultsThatTheSchemaStates) {
  const v1::RouterConfig config = Parse("");
  const router::RouterConfig core = CoreConfig(config);
  EXPECT_EQ(core.policy, "cache-aware");
  EXPECT_FALSE(core.admission.on());
  EXPECT_EQ(core.patience, milliseconds(5000));
  EXPECT_EQ(core.health.slow_start, milliseconds(10'000));
  EXPECT_EQ(core.health.panic, router::PanicRule::kRouteToAll);
  const router::GatewayOptions http = HttpOptions(config, 1);
  EXPECT_EQ(http.max_attempts, 3);
  EXPECT_EQ(http.max_losses, 2);
  EXPECT_EQ(http.timeouts.first_byte, std::chrono::seconds(300));
  EXPECT_FALSE(http.share_port);
}

TEST(RouterSettings, QueueLimits_TheQueueFollowsTheBound_UnlessItIsSet) {
  const auto admission = [](const std::string& limits) {
    return CoreConfig(Parse("limits:\n" + limits)).admission;
  };
  const auto bounded = admission("  max_in_flight_per_replica: 4\n");
  EXPECT_EQ(bounded.max_in_flight_per_replica, 4);
  EXPECT_EQ(bounded.queue_length, 1024u);
  EXPECT_EQ(bounded.queue_timeout, milliseconds(30'000));
  const auto shortest = admission("  max_in_flight_per_replica: 4\n  queue_length: 0\n");
  EXPECT_EQ(shortest.queue_length, 0u);
  const auto waits = admission("  queue_length: 7\n  queue_timeout_ms: 50\n");
  EXPECT_EQ(waits.max_in_flight_per_replica, 0);
  EXPECT_EQ(waits.queue_length, 7u);
  EXPECT_EQ(waits.queue_timeout, milliseconds(50));
  EXPECT_EQ(admission("  max_in_flight_per_replica: 4294967295\n").max_in_flight_per_replica, INT32_MAX);
}

TEST(RouterSettings, FaultSettings_ReachTheCoreAndBothFronts) {
  const v1::RouterConfig config = Parse(
      "health:\n  slow_start_ms: 0\n  refuse_in_panic: true\n"
      "limits:\n  first_token_ms: 0\n  max_losses: 5\n  retry_share: 0\n  retries_per_second: 1.5\n"
      "  first_byte_timeout_ms: 700\nheartbeat_ms: 15\nshare_port: true\nindex_bytes: 1000000\n");
  const router::RouterConfig core = CoreConfig(config);
  EXPECT_EQ(core.health.slow_start, Duration(0));
  EXPECT_EQ(core.health.panic, router::PanicRule::kRefuse);
  EXPECT_EQ(core.patience, Duration(0));
  EXPECT_EQ(core.retries.share, 0);
  EXPECT_EQ(core.retries.per_second, 1.5);
  EXPECT_EQ(core.index_bytes, 1'000'000);
  EXPECT_EQ(HttpOptions(config, 1).heartbeat, milliseconds(15));
  const router::GrpcFrontOptions grpc = GrpcOptions(config);
  EXPECT_EQ(grpc.max_losses, 5);
  EXPECT_TRUE(grpc.share_port);
  EXPECT_EQ(grpc.timeouts.first_byte, milliseconds(700));
}

TEST(RouterSettings, Access_KeysAliasesAndReplicaKeys_ByTheOneSpellingOfAUrl) {
  const router::AccessRules rules =
      AccessOf(Parse("api_keys:\n  - name: a\n    key: K\n    requests_per_minute: 6\n    max_in_flight: 2\n "
                     "   isolate: true\n"
                     "aliases:\n  - name: n\n    model: m\n"
                     "backends:\n  - url: HTTP://127.0.0.1:1/\n    api_key: R\n    weight: 0\n  - url: "
                     "http://127.0.0.1:2\n"));
  ASSERT_EQ(rules.keys.size(), 1u);
  EXPECT_EQ(rules.keys[0].limits.requests_per_minute, 6);
  EXPECT_EQ(rules.keys[0].limits.max_in_flight, 2);
  EXPECT_TRUE(rules.keys[0].isolate);
  EXPECT_EQ(rules.aliases.at("n"), "m");
  EXPECT_EQ(rules.replica_keys, (std::map<std::string, std::string>{{"http://127.0.0.1:1", "R"}}));
}

TEST(RouterSettings, Weight_ZeroIsZero_AbsentIsOne) {
  const auto backends =
      BackendsOf(Parse("backends:\n  - url: http://a:1\n    weight: 0\n  - url: http://b:1\n"));
  EXPECT_EQ(backends[0].weight, 0);
  EXPECT_EQ(backends[1].weight, 1);
}

TEST(RouterSettings, FieldsForRestart_OnlyWhatIsNotFollowed) {
  const v1::RouterConfig running = Parse("listen: 127.0.0.1:1\nseed: 3\n");
  EXPECT_EQ(
      FieldsForRestart(running, Parse("listen: 127.0.0.1:1\nseed: 3\nbackends:\n  - url: http://a:1\n")), "");
  const std::string changed =
      FieldsForRestart(running, Parse("listen: 127.0.0.1:1\nseed: 3\nlimits:\n  max_attempts: 9\n"));
  EXPECT_NE(changed.find("limits"), std::string::npos) << changed;
}

}  // namespace
}  // namespace kvring::cli
