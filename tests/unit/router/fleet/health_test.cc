#include "router/fleet/health.h"

#include <gtest/gtest.h>

#include "common/random.h"
#include "router/fleet/charge.h"
#include "router/fleet/replica_table.h"
#include "router/fleet/session_table.h"
#include "router/fleet/token_estimator.h"

namespace kvring::router {
namespace {

using std::chrono::seconds;

constexpr Instant kStart{0};

TEST(Health, HLT_06_OneSlowProbe_DoesNotFlip) {
  Health health({.unhealthy_after = 3, .healthy_after = 2});
  health.OnProbe(true, kStart);  // the case starts up
  std::string states;
  for (const char probe : std::string("PFPFFPFFFPFPP")) {
    health.OnProbe(probe == 'P', kStart);
    states += health.state() == ReplicaState::kUp ? 'U' : 'D';
  }
  EXPECT_EQ(states, "UUUUUUUUDDDDU");
  EXPECT_EQ(health.transitions(), 2u);
}

TEST(Health, NeverProbed_IsStartingUntilTheFirstContact) {
  Health health({});
  EXPECT_EQ(health.state(), ReplicaState::kStarting);
  health.OnProbe(false, kStart);
  health.OnProbe(false, kStart);
  EXPECT_EQ(health.state(), ReplicaState::kStarting);
  health.OnProbe(false, kStart);
  EXPECT_EQ(health.state(), ReplicaState::kDown);
  Health served({});
  served.OnSuccess();
  EXPECT_EQ(served.state(), ReplicaState::kUp);
}

TEST(Health, Ejection_BacksOffByDoublingUpTo64Times) {
  Health health({.healthy_after = 1, .eject_after = 1, .eject_time = seconds(1)});
  Instant now{0};
  health.OnProbe(true, now);
  health.OnFailure(now);
  for (const int wait : {1, 2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_FALSE(health.wants_trial(now + seconds(wait) - Duration(1)));
    now = now + seconds(wait);
    ASSERT_TRUE(health.wants_trial(now));
    health.BeginTrial();
    EXPECT_FALSE(health.wants_trial(now));
    health.OnTrialFailure(now);
  }
  now = now + seconds(64);
  health.BeginTrial();
  health.OnTrialSuccess(now);
  EXPECT_EQ(health.state(), ReplicaState::kUp);
  health.OnFailure(now);  // the back-off began anew
  EXPECT_TRUE(health.wants_trial(now + seconds(1)));
}

TEST(Health, Trials_AsManySuccessesAsConfigured) {
  Health health({.healthy_after = 2, .eject_after = 1, .eject_time = seconds(1)});
  health.OnFailure({0});
  const Instant later{seconds(2).count() * 1'000'000'000};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(health.state(), ReplicaState::kEjected);
    ASSERT_TRUE(health.wants_trial(later));
    health.BeginTrial();
    health.OnTrialSuccess(later);
  }
  EXPECT_EQ(health.state(), ReplicaState::kUp);
}

TEST(Health, SuccessBetweenFailures_StartsTheCountAnew) {
  Health health({.eject_after = 3});
  for (int i = 0; i < 10; ++i) {
    health.OnFailure({0});
    health.OnFailure({0});
    health.OnSuccess();
  }
  EXPECT_EQ(health.state(), ReplicaState::kUp);
}

TEST(Health, NewEpoch_ClosesTheBreaker) {
  Health health({.eject_after = 1});
  health.OnFailure({0});
  health.OnNewEpoch();
  EXPECT_EQ(health.state(), ReplicaState::kUp);
}

TEST(Charge, AnyOrderOfEvents_ReturnsExactlyOnce) {
  Random random(3);
  PrefillModel model;
  for (int run = 0; run < 2000; ++run) {
    Replica replica(ReplicaId{1}, 0, {.url = "u"}, {});
    Instant now{run};
    std::vector<Charge> charges(5);
    for (Charge& charge : charges)
      charge.Take(replica, static_cast<int64_t>(random.Below(100)), 50, 1000, now);
    EXPECT_EQ(replica.load.in_flight, 5);
    for (int i = 0; i < 40; ++i) {
      Charge& charge = charges[random.Below(5)];
      now = now + seconds(1);
      switch (random.Below(3)) {
        case 0:
          if (charge.taken()) charge.Admitted(replica);
          break;
        case 1:
          charge.FirstToken(replica, model, {}, now);
          break;
        default:
          charge.End(replica, now);
      }
      ASSERT_GE(replica.load.in_flight, 0);
      ASSERT_GE(replica.load.pending_prefill_tokens, 0);
      ASSERT_GE(replica.load.awaiting_first_token, 0);
    }
    for (Charge& charge : charges) charge.End(replica, now);
    EXPECT_EQ(replica.load.in_flight, 0);
    EXPECT_EQ(replica.load.awaiting_first_token, 0);
    EXPECT_EQ(replica.load.pending_prefill_tokens, 0);
    EXPECT_EQ(replica.load.pending_kv_tokens, 0);
  }
}

TEST(PrefillModel, FixedPlusLinear_BothAreFound) {
  PrefillModel model;
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const double tokens = static_cast<double>(random.Below(3000));
    model.Observe(tokens, 0.040 + tokens / 50'000 + random.Uniform() * 0.002);
  }
  EXPECT_NEAR(model.TokensPerSecond(), 50'000, 1000);
  EXPECT_NEAR(model.FixedSeconds(), 0.041, 0.001);
}

TEST(PrefillModel, EqualPromptsOnly_FixedPartIsNeverNegative) {
  PrefillModel model;
  for (int i = 0; i < 100; ++i) model.Observe(500, 0.010);
  EXPECT_NEAR(model.FixedSeconds() + 500 / model.TokensPerSecond(), 0.010, 1e-6);
}

TEST(Slowness, HalfSpeed_IsLearnt) {
  Slowness slow, equal;
  for (int i = 0; i < 500; ++i) {
    slow.Observe(0.1, 0.2);
    equal.Observe(0.1, i % 2 == 0 ? 0.098 : 0.1015);
  }
  EXPECT_GT(slow.value(), 1.5);
  EXPECT_EQ(equal.value(), 1.0);
}

TEST(SessionTable, RecentHalfIsAlwaysKnown_SizeIsBounded) {
  SessionTable table(100);
  for (uint64_t i = 0; i < 10'000; ++i) {
    table.Put(SessionKey{i},
              {.replica = ReplicaId{static_cast<uint32_t>(i % 7)}, .epoch = Epoch{1}, .tokens = 5});
    ASSERT_LE(table.size(), 100u);
    for (uint64_t back = 0; back < std::min<uint64_t>(i + 1, 50); ++back)
      ASSERT_TRUE(table.Find(SessionKey{i - back}));
  }
  EXPECT_FALSE(table.Find(SessionKey{5}));
}

// Replicas that tell their rate: one that told nothing yet is taken for an average one, never for a faster
// one.
TEST(ReplicaTable, ToldRates_UnknownIsTheMean_NoiseIsNoDifference) {
  ReplicaTable table{HealthRules{}};
  Replica& told = table.Add({.url = "grpc://a:1"});
  Replica& noisy = table.Add({.url = "grpc://b:1"});
  Replica& half = table.Add({.url = "grpc://c:1"});
  Replica& unknown = table.Add({.url = "grpc://d:1"});
  for (int i = 0; i < 200; ++i) {
    table.OnLoadReport(told, {.prefill_tokens_per_second = 1000}, Instant{i});
    table.OnLoadReport(noisy, {.prefill_tokens_per_second = 1120}, Instant{i});
  }
  EXPECT_EQ(table.PrefillRateOf(unknown), table.PrefillRateOf(told));
  EXPECT_EQ(table.PrefillRateOf(noisy), table.PrefillRateOf(told));
  EXPECT_NEAR(table.PrefillRateOf(told), 1060, 20);
  table.OnLoadReport(half, {.prefill_tokens_per_second = 500}, Instant{0});
  EXPECT_NEAR(table.PrefillRateOf(half) / table.PrefillRateOf(told), 0.5, 0.01);
}

TEST(TokenEstimator, LearnsPerModel) {
  TokenEstimator tokens;
  EXPECT_EQ(tokens.BytesPerToken("m"), 4);
  for (int i = 0; i < 1000; ++i) tokens.Learn("m", 3000, 1000);
  EXPECT_NEAR(tokens.BytesPerToken("m"), 3, 0.01);
  EXPECT_EQ(tokens.BytesPerToken("other"), 4);
  for (int i = 0; i < 10'000; ++i) tokens.Learn("m", 5000, 1000);
  EXPECT_NEAR(tokens.BytesPerToken("m"), 5, 0.05);
}

}  // namespace
}  // namespace kvring::router
