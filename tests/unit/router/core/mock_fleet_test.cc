// The routing bars on a simulated fleet (mock_fleet.h), no session key anywhere. The figures to beat were
// measured on other routers with the same workload: base 0.891 hits at max/mean 1.60, or 0.877 at 1.00 with
// a session header; hot prefix with one prefill slot 0.884 at 1.00 and p99 121 ms with a header. No
// placement can pass 0.892.
#include "tests/unit/router/core/mock_fleet.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace kvring::router {
namespace {

// Of three seeds: medians of hits, balance and tail, as the peers were measured.
MockResult Median(MockWorkload workload, const char* name) {
  std::vector<MockResult> runs;
  for (workload.seed = 1; workload.seed <= 3; ++workload.seed) runs.push_back(MockFleet(workload).Run());
  const auto middle = [&](double MockResult::*field) {
    std::sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return a.*field < b.*field; });
    return runs[1].*field;
  };
  const double balance = middle(&MockResult::max_over_mean), worst = runs[2].max_over_mean,
               p99 = middle(&MockResult::p99_ms);
  MockResult median = (middle(&MockResult::hit), runs[1]);
  median.max_over_mean = balance;
  median.p99_ms = p99;
  std::printf("%-13s %-20s hit %.4f @ %.2f (worst %.2f)  p50 %.0f ms  p99 %.0f ms  same backend %.3f\n", name,
              workload.policy.c_str(), median.hit, balance, worst, median.p50_ms, median.p99_ms,
              median.same_backend);
  return median;
}

TEST(MockFleet, Base_NoSessionKey_HitsAndBalance) {
  const MockResult r = Median({}, "base");
  EXPECT_GE(r.hit, 0.885);
  EXPECT_LE(r.max_over_mean, 1.15);
}

TEST(MockFleet, Base_AnswersComeBackChanged_TurnsStayTogether) {
  const MockResult r = Median({.answer = "assistant\x1ftok tok tok tok"}, "other answers");
  EXPECT_GE(r.hit, 0.885);
  EXPECT_LE(r.max_over_mean, 1.15);
}

TEST(MockFleet, Tight_CapacityUnknownToTheRouter_HitsAndBalance) {
  const MockResult r = Median({.capacity_blocks = 3000}, "tight");
  EXPECT_GE(r.hit, 0.865);
  EXPECT_LE(r.max_over_mean, 1.15);
}

TEST(MockFleet, Hot_HalfShareOnePrompt_GetsCopiesByItself) {
  const MockResult r = Median({.hot_percent = 50, .connections = 64}, "hot");
  EXPECT_GE(r.hit, 0.883);
  EXPECT_LE(r.max_over_mean, 1.15);
}

TEST(MockFleet, HotOneSlot_HitsBalanceAndTail) {
  const MockResult r = Median({.hot_percent = 50, .connections = 64, .slots = 1}, "hot slots 1");
  EXPECT_GE(r.hit, 0.880);
  EXPECT_LE(r.max_over_mean, 1.15);
  EXPECT_LE(r.p99_ms, 121);
}

TEST(MockFleet, Hot95OneSlot_NearlyAllShareOnePrompt_StaysBalanced) {
  const MockResult r = Median({.hot_percent = 95, .connections = 64, .slots = 1}, "hot95 slots 1");
  EXPECT_GE(r.hit, 0.880);
  EXPECT_LE(r.max_over_mean, 1.15);
}

TEST(MockFleet, AddedBackend_GetsItsShareWithoutHarm) {
  MockWorkload w{.late_percent = 30, .event_percent = 35};
  const double without = Median(w, "no event").hit;
  w.add_at_event = true;
  const MockResult r = Median(w, "added");
  EXPECT_GE(r.new_share, 0.70);
  EXPECT_LE(r.new_share, 1.5);  // and no flood
  EXPECT_GE(r.hit, without - 0.01);
}

// Death spiral: 64 more sessions at a step overload the fleet; the hit rate must not stay down.
TEST(MockFleet, LoadStep_HitRateRecovers) {
  const MockResult r =
      Median({.late_percent = 50, .event_percent = 40, .connections = 96, .slots = 1}, "step");
  EXPECT_GE(r.hit_by_tenth[9], 0.90);
  EXPECT_GE(r.hit_by_tenth[8], r.hit_by_tenth[3] - 0.02);
}

TEST(MockFleet, UnequalBackends_SlowHalfIsSentLess) {
  const MockWorkload w{
      .hot_percent = 50, .connections = 64, .slots = 1, .slowness = {2, 2, 2, 2, 1, 1, 1, 1}};
  const MockResult r = Median(w, "half slow");
  int slow = 0, fast = 0;
  for (size_t i = 0; i < 8; ++i) (i < 4 ? slow : fast) += r.answers[i];
  EXPECT_LT(slow, fast * 0.95);
  EXPECT_GE(r.hit, 0.88);
}

TEST(MockFleet, EveryPolicy_HitsAndPredictsThem) {
  for (const std::string& policy : Router::PolicyNames()) {
    const MockResult base = MockFleet({.policy = policy}).Run();
    std::printf("%-20s hit %.4f @ %.2f  p99 %.0f ms\n", policy.c_str(), base.hit, base.max_over_mean,
                base.p99_ms);
    EXPECT_GT(base.hit, 0.4);
    EXPECT_LT(base.prediction_error, 0.05);
  }
}

TEST(MockFleet, SameSeed_SameRun) {
  const MockResult a = MockFleet({.hot_percent = 50, .seed = 9}).Run(),
                   b = MockFleet({.hot_percent = 50, .seed = 9}).Run();
  EXPECT_EQ(a.answers, b.answers);
  EXPECT_EQ(a.hit, b.hit);
}

}  // namespace
}  // namespace kvring::router
