#include "router/admin/metrics_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_cat.h"

namespace kvring::router {
namespace {

size_t Lines(const std::string& text, const std::string& start) {
  std::istringstream in(text);
  size_t count = 0;
  for (std::string line; std::getline(in, line);) count += line.starts_with(start) ? 1 : 0;
  return count;
}

TEST(MetricsText, Obs04_SeriesOfRemovedReplicasVanish) {
  auto router = Router::Create({.policy = "round-robin", .seed = 1});
  const ReplicaId stays = router->AddReplica({.url = "http://127.0.0.1:1"}, {});
  const size_t before = MetricsText(*router, {}).size();
  for (int i = 0; i < 1000; ++i) {
    router->RemoveReplica(router->AddReplica({.url = absl::StrCat("http://10.0.0.1:", 1000 + i)}, {}), {});
  }
  const std::string text = MetricsText(*router, {});
  EXPECT_EQ(text.size(), before);
  EXPECT_EQ(Lines(text, "kvring_core_replica_up{"), 1u);
  router->RemoveReplica(stays, {});
  EXPECT_EQ(Lines(MetricsText(*router, {}), "kvring_core_replica_"), 0u);
}

TEST(MetricsText, Obs06_CountersByOutcomeAndReason) {
  auto router = Router::Create({.policy = "round-robin", .seed = 1});
  const ReplicaId id = router->AddReplica({.url = "http://127.0.0.1:1"}, {});
  router->OnReplicaFacts(id, {.epoch = {1}, .models = {"m"}}, {});
  for (uint64_t i = 1; i <= 3; ++i) {
    router->OnRequest({.id = {i}}, {});
    router->OnDispatch({i}, {});
    router->OnComplete({i}, {.outcome = i == 3 ? OutcomeClass::kTimeout : OutcomeClass::kOk}, {});
  }
  const std::string text = MetricsText(*router, {});
  EXPECT_EQ(Lines(text, "kvring_core_outcomes_total{outcome=\"ok\"} 2"), 1u) << text;
  EXPECT_EQ(Lines(text, "kvring_core_outcomes_total{outcome=\"timeout\"} 1"), 1u);
  EXPECT_EQ(Lines(text, "kvring_core_requests_total 3"), 1u);
  EXPECT_EQ(Lines(text, "kvring_core_replica_in_flight{"), 1u);
  EXPECT_EQ(Lines(text, "kvring_core_reasons_total{"), size_t{kReasons});
}

}  // namespace
}  // namespace kvring::router
