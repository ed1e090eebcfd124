// Bounds that keep one fault from becoming many: slow start, panic, the retry budget, patience.
#include "tests/unit/router/core/router_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FaultTest : public RouterTest {
 protected:
  void Eject(ReplicaId id) {
    std::vector<ReplicaId> others;
    for (const ReplicaId other : ids_) {
      if (other != id) others.push_back(other);
    }
    for (int i = 0; i < 5; ++i) Finish(Ask(nullptr, others).id, OutcomeClass::kReplicaError);
    EXPECT_EQ(View(id).state, ReplicaState::kEjected);
  }
  int InFlight(ReplicaId id) { return View(id).in_flight; }
};

TEST_F(FaultTest, SlowStart_OneThenTwiceAsManyEachSecond_OnlyForWhoComesBack) {
  Start("round-robin", 2, {.healthy_after = 1});
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kUp);  // new members start at once
  Eject(ids_[0]);
  now_ = now_ + seconds(10);
  Finish(Ask(nullptr).id);  // the trial
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kUp);
  for (const int limit : {1, 2, 4, 8}) {
    for (int i = 0; i < 40; ++i) Ask(nullptr);
    EXPECT_EQ(InFlight(ids_[0]), limit);
    now_ = now_ + seconds(1);
  }
  now_ = now_ + seconds(7);
  for (int i = 0; i < 40; ++i) Ask(nullptr);
  EXPECT_GT(InFlight(ids_[0]), 27);
}

TEST_F(FaultTest, SlowStart_AfterProbesFailed_AndNobodyElse_TakesAll) {
  Start("round-robin", 1);
  for (int i = 0; i < 3; ++i) router_->OnProbe(ids_[0], false, now_);
  EXPECT_EQ(Ask(nullptr).decision.refusal, Refusal::kNoEndpoints);
  for (int i = 0; i < 2; ++i) router_->OnProbe(ids_[0], true, now_);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Ask(nullptr).decision.replica);  // slow, but not refused
}

TEST_F(FaultTest, Panic_IsSaid_AndRefusesWhereToldTo) {
  for (const PanicRule rule : {PanicRule::kRouteToAll, PanicRule::kRefuse}) {
    Start("round-robin", 3, {.panic = rule});
    Eject(ids_[0]);
    EXPECT_TRUE(router_->Panics().empty());
    Eject(ids_[1]);
    router_->Tick(now_);
    ASSERT_EQ(router_->Panics(), std::vector<std::string>{"m"});
    ASSERT_FALSE(router_->Warnings().empty());
    EXPECT_EQ(router_->Warnings()[0].find("panic: more than half of the pool of m"), 0u);
    std::set<ReplicaId> used;
    for (int i = 0; i < 9; ++i) {
      const Sent sent = Ask(nullptr);
      if (rule == PanicRule::kRefuse) {
        EXPECT_EQ(sent.decision.refusal, Refusal::kNoEndpoints);
      } else {
        used.insert(*sent.decision.replica);
      }
    }
    EXPECT_EQ(used.size(), rule == PanicRule::kRefuse ? 0u : 3u);
  }
}

TEST_F(FaultTest, RetryBudget_AFleetThatFails_IsNotTriedTwiceForEach) {
  router_ = Router::Create({.policy = "round-robin",
                            .seed = 3,
                            .health = {.eject_after = 1'000'000},
                            .retries = {.share = 0.2, .per_second = 0, .burst = 10}});
  for (int i = 0; i < 4; ++i) Add("http://10.0.0." + std::to_string(i + 1) + ":8000", {"m"});
  int retried = 0;
  for (int i = 0; i < 1000; ++i) {
    const Sent first = Ask(nullptr);
    Fail(first.id, OutcomeClass::kReplicaError);
    const Decision again =
        router_->OnRequest({.id = first.id, .model = "m", .excluded = {&*first.decision.replica, 1}}, now_);
    retried += again.replica.has_value();
    if (!again.replica) {
      EXPECT_EQ(again.refusal, Refusal::kLimit);
    }
    Finish(first.id, OutcomeClass::kReplicaError);
  }
  EXPECT_NEAR(retried, 10 + 200, 2);
  EXPECT_EQ(router_->retries_refused(), static_cast<uint64_t>(1000 - retried));
  ExpectAllGaugesZero();
}

TEST(RetryBudget, Time_RefillsUpToTheBurst) {
  RetryBudget budget({.share = 0, .per_second = 10, .burst = 5});
  Instant now{0};
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
  EXPECT_TRUE(budget.Take(now + milliseconds(100)));
  EXPECT_FALSE(budget.Take(now + milliseconds(150)));
  now = now + seconds(100);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
}

TEST_F(FaultTest, Patience_GrowsWithPromptLoadAndSlowFleets) {
  Start("round-robin", 1);
  EXPECT_EQ(Ask(&Prompt(Text(1, 400))).decision.patience, Duration(0));  // nothing is known yet
  const auto serve = [&](size_t tokens, double ttft_s) {
    const Sent sent = Ask(&Prompt(Text(tokens + static_cast<size_t>(last_), tokens * 4)));
    now_ = now_ + FromSeconds(ttft_s);
    router_->OnFirstToken(sent.id, now_);
    Finish(sent.id);
  };
  for (size_t i = 0; i < 50; ++i) {
    serve(1000, 0.1);  // 20,000 tokens/s behind 50 ms
    serve(3000, 0.2);
  }
  const auto patience = [&](size_t tokens) {
    const Sent sent = Ask(&Prompt(Text(tokens, tokens * 4)));
    Finish(sent.id, OutcomeClass::kClientAbort);
    return ToSeconds(sent.decision.patience);
  };
  const double small = patience(100);
  EXPECT_GT(small, 5.0);
  EXPECT_LT(small, 7.0);
  EXPECT_GT(patience(100'000), small + 15);  // 5 s of prefill, four times
  const Sent running = Ask(&Prompt(Text(77, 400'000)));
  EXPECT_GT(patience(100), small + 15);  // behind it
  Finish(running.id, OutcomeClass::kClientAbort);
  serve(1000, 20);
  EXPECT_GT(patience(100), small + 50);  // a fleet that is slow as a whole
  for (int i = 0; i < 6000; ++i) router_->Tick(now_ = now_ + milliseconds(100));
  EXPECT_LT(patience(100), small + 5);
}

}  // namespace
}  // namespace kvring::router
