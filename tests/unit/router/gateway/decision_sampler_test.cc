#include "router/gateway/decision_sampler.h"

#include <gtest/gtest.h>

namespace kvring::router {
namespace {

TEST(DecisionSampler, Takes_TheShare_AndTheSameRequestsEachTime) {
  const DecisionSampler tenth(0.1);
  int taken = 0;
  for (uint64_t i = 1; i <= 10'000; ++i) taken += tenth.Takes(RequestId{i}) ? 1 : 0;
  EXPECT_NEAR(taken, 1000, 100);
  EXPECT_FALSE(DecisionSampler(0).Takes(RequestId{1}));
  for (uint64_t i = 1; i <= 100; ++i) EXPECT_TRUE(DecisionSampler(1).Takes(RequestId{i}));
}

// OBS-08: the line says what the decision log says; what was asked is not in it.
TEST(DecisionSampler, Complete_LogsTheStoryWithWhatTheEngineReported_OBS_08) {
  RouterGuard guard(Router::Create({.policy = "cache-aware", .seed = 1}));
  guard.With([](Router& router) { router.AddReplica({.url = "http://10.0.0.1:1", .models = {"m"}}, Now()); });
  const std::string secret(600, 's');
  const PromptKey key = MakePromptKey({"m", {}, {}}, std::string_view(secret));
  std::string replica;
  const auto run = [&](uint64_t number, const DecisionSampler& sampler) {
    guard.With([&](Router& router) {
      router.OnProbe(router.Replicas(Now())[0].id, true, Now());
      const Decision decision =
          router.OnRequest({.id = RequestId{number}, .name = "req-x", .model = "m", .prompt = &key}, Now());
      ASSERT_TRUE(decision.replica);
      router.OnDispatch(RequestId{number}, Now());
      replica = router.Replicas(Now())[0].name;
    });
    testing::internal::CaptureStderr();
    sampler.Complete(
        guard, RequestId{number},
        {.usage = UsageReport{.prompt_tokens = 150, .completion_tokens = 3, .cached_tokens = 16}}, Now());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(run(1, DecisionSampler(0)), "");
  const std::string line = run(2, DecisionSampler(1));
  for (const std::string& part : {std::string("request=req-x"), "replica=" + replica, std::string("reason="),
                                  std::string("prompt_tokens=150"), std::string("cached_tokens=16"),
                                  std::string("candidates=" + replica + ":")})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  EXPECT_EQ(line.find("sss"), std::string::npos);
  guard.With([](Router& router) { EXPECT_EQ(router.Replicas(Now())[0].in_flight, 0); });
}

}  // namespace
}  // namespace kvring::router
