// Waiting for room: who waits, who goes next, who is refused and how it is counted; case ids in the names.
#include <gtest/gtest.h>

#include "router/router.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class QueueTest : public ::testing::Test {
 protected:
  void Start(int replicas, const AdmissionRules& admission, HealthRules health = {}) {
    router_ =
        Router::Create({.policy = "least-requests", .seed = 3, .health = health, .admission = admission});
    for (int i = 0; i < replicas; ++i) Add("http://10.0.0." + std::to_string(i + 1));
  }
  ReplicaId Add(const std::string& url, std::vector<std::string> models = {"m"}) {
    const ReplicaId id = router_->AddReplica({.url = url, .models = std::move(models)}, now_);
    router_->OnProbe(id, true, now_);
    ids_.push_back(id);
    return id;
  }
  struct Asked {
    int32_t priority = 0;
    std::optional<Duration> patience;
    std::string_view model = "m";
  };
  Decision Ask(uint64_t id, const Asked& asked) {
    RequestView view{.id = {id}, .model = asked.model, .priority = asked.priority};
    if (asked.patience) view.deadline = now_ + *asked.patience;
    return Send(view);
  }
  Decision Ask(uint64_t id) { return Ask(id, {}); }
  Decision Again(uint64_t id, std::vector<ReplicaId> excluded) {
    return Send({.id = {id}, .model = "m", .excluded = excluded});
  }
  Decision Send(const RequestView& view) {
    const Decision decision = router_->OnRequest(view, now_);
    EXPECT_LE((decision.replica ? 1 : 0) + (decision.queued ? 1 : 0), 1);
    if (decision.replica) router_->OnDispatch(view.id, now_);
    return decision;
  }
  void Finish(uint64_t id, OutcomeClass outcome = OutcomeClass::kOk) {
    router_->OnComplete({id}, {.outcome = outcome}, now_);
  }
  /// Ids that went to a replica; refusals go to `refused_`.
  std::vector<uint64_t> Take() {
    std::vector<uint64_t> went;
    if (!router_->MayRelease()) return went;
    for (const Released& released : router_->TakeReady(now_)) {
      EXPECT_FALSE(released.decision.queued);
      if (released.decision.replica) {
        went.push_back(released.id.value);
        continue;
      }
      EXPECT_GE(released.decision.retry_after, seconds(1));
      refused_.emplace_back(released.id.value, released.decision.refusal);
      Finish(released.id.value, OutcomeClass::kRefused);
    }
    return went;
  }
  std::vector<uint64_t> TickAndTake(Duration later) {
    now_ = now_ + later;
    router_->Tick(now_);
    return Take();
  }
  int InFlight() {
    int sum = 0;
    for (const ReplicaView& view : router_->Replicas(now_)) sum += view.in_flight;
    return sum;
  }

  Instant now_{1'000'000'000};
  std::unique_ptr<Router> router_;
  std::vector<ReplicaId> ids_;
  std::vector<std::pair<uint64_t, Refusal>> refused_;
};

using Ids = std::vector<uint64_t>;
using Refusals = std::vector<std::pair<uint64_t, Refusal>>;

TEST_F(QueueTest, Off_NothingIsFullAndNobodyWaits) {
  Start(1, {});
  for (uint64_t id = 1; id <= 1000; ++id) EXPECT_TRUE(Ask(id).replica);
  EXPECT_FALSE(router_->MayRelease());
}

TEST_F(QueueTest, HLT_18a_NoReplicas_503) {
  Start(0, {.max_in_flight_per_replica = 1, .queue_length = 4});
  const Decision decision = Ask(1);
  EXPECT_FALSE(decision.queued);
  EXPECT_EQ(decision.refusal, Refusal::kNoEndpoints);
  EXPECT_GE(decision.retry_after, seconds(1));
}

TEST_F(QueueTest, HLT_18b_TwoSaturated_FourWait_SurplusIsTurnedAway) {
  Start(2, {.max_in_flight_per_replica = 3, .queue_length = 4});
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_TRUE(Ask(id).replica);
  int queued = 0, full = 0;
  for (uint64_t id = 7; id <= 16; ++id) {
    const Decision decision = Ask(id);
    queued += decision.queued;
    full += decision.refusal == Refusal::kQueueFull;
    if (decision.refusal == Refusal::kNone) continue;
    EXPECT_GE(decision.retry_after, seconds(1));
    Finish(id, OutcomeClass::kRefused);
  }
  EXPECT_EQ(queued, 4);
  EXPECT_EQ(full, 6);
  EXPECT_EQ(router_->queue_stats().waiting, 4u);
  EXPECT_EQ(Take(), Ids{});
  for (const ReplicaView& view : router_->Replicas(now_)) EXPECT_EQ(view.in_flight, 3);
  Finish(3);
  EXPECT_EQ(Take(), Ids{7});
  Finish(1), Finish(2);
  EXPECT_EQ(Take(), (Ids{8, 9}));
  for (const uint64_t id : {4, 5, 6, 7, 8, 9}) Finish(id);
  EXPECT_EQ(Take(), Ids{10});
  Finish(10);
  EXPECT_EQ(InFlight(), 0);
  EXPECT_EQ(router_->queue_stats().waiting, 0u);
  EXPECT_EQ(router_->queue_stats().served, 4u);
  EXPECT_EQ(router_->queue_stats().full, 6u);
}

TEST_F(QueueTest, HLT_18c_WaitedTooLongBehindLiveReplicas_429) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4, .queue_timeout = seconds(2)});
  Ask(1);
  EXPECT_TRUE(Ask(2).queued);
  EXPECT_EQ(TickAndTake(milliseconds(1999)), Ids{});
  EXPECT_EQ(refused_, Refusals{});
  EXPECT_EQ(TickAndTake(milliseconds(1)), Ids{});
  EXPECT_EQ(refused_, (Refusals{{2, Refusal::kQueueTimeout}}));
  Finish(1);
  EXPECT_EQ(InFlight(), 0);
}

TEST_F(QueueTest, HLT_19_AllCooling_ServedByTheFirstToReturn) {
  Start(2, {.queue_length = 4});
  for (const auto& [id, wait] : {std::pair<uint64_t, int>{1, 5000}, {2, 800}}) {
    ASSERT_TRUE(Ask(id).replica);
    router_->OnAttemptFailed({id}, {OutcomeClass::kBackpressure, milliseconds(wait)}, now_);
    Finish(id, OutcomeClass::kBackpressure);
  }
  EXPECT_TRUE(Ask(3, {.patience = seconds(3)}).queued);
  EXPECT_TRUE(Ask(4, {.patience = milliseconds(500)}).queued);
  EXPECT_EQ(TickAndTake(milliseconds(500)), Ids{});
  EXPECT_EQ(refused_, (Refusals{{4, Refusal::kNoEndpoints}}));
  EXPECT_EQ(router_->Why("4")->decision.retry_after, seconds(1));
  EXPECT_EQ(TickAndTake(milliseconds(299)), Ids{});
  EXPECT_EQ(TickAndTake(milliseconds(1)), Ids{3});
  EXPECT_EQ(router_->Why("3")->attempts, 1);
}

TEST_F(QueueTest, OBS_07_EveryEndOfWaitingIsCountedByItsReason) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 15, .queue_timeout = seconds(10)});
  Ask(100);
  for (uint64_t id = 1; id <= 20; ++id) {
    const Decision decision = Ask(id, {.patience = id <= 5 ? seconds(1) : seconds(10)});
    EXPECT_EQ(decision.queued, id <= 15) << id;
    if (!decision.queued) Finish(id, OutcomeClass::kRefused);
  }
  for (uint64_t id = 6; id <= 10; ++id) Finish(id, OutcomeClass::kClientAbort);
  EXPECT_EQ(TickAndTake(seconds(1)), Ids{});
  uint64_t running = 100;
  for (uint64_t id = 11; id <= 15; ++id) {
    Finish(running);
    EXPECT_EQ(Take(), Ids{id});
    running = id;
  }
  Finish(running);
  const QueueStats stats = router_->queue_stats();
  EXPECT_EQ(stats.cancelled, 5u);
  EXPECT_EQ(stats.timed_out, 5u);
  EXPECT_EQ(stats.full, 5u);
  EXPECT_EQ(stats.served, 5u);
  EXPECT_EQ(stats.no_endpoints, 0u);
  EXPECT_EQ(stats.waiting, 0u);
  EXPECT_EQ(InFlight(), 0);
  EXPECT_EQ(router_->totals().requests, 21u);
}

TEST_F(QueueTest, GRP_08c_CancelledInQueue_IsNeverDispatched) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4});
  Ask(1);
  EXPECT_TRUE(Ask(2).queued);
  Finish(2, OutcomeClass::kClientAbort);
  Finish(1);
  EXPECT_EQ(Take(), Ids{});
  EXPECT_EQ(router_->queue_stats().cancelled, 1u);
  EXPECT_EQ(router_->Replicas(now_)[0].requests, 1u);
  EXPECT_EQ(InFlight(), 0);
}

TEST_F(QueueTest, Released_ThenClientGone_GivesItsPlaceBackOnce) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4});
  Ask(1), Ask(2), Ask(3);
  Finish(1);
  EXPECT_EQ(Take(), Ids{2});
  Finish(2, OutcomeClass::kClientAbort);
  EXPECT_EQ(Take(), Ids{3});
  EXPECT_EQ(InFlight(), 1);
  EXPECT_EQ(router_->queue_stats().cancelled, 0u);
}

TEST_F(QueueTest, Priority_GoesFirst_AndTakesTheLastPlaceOfAFullLine) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 2});
  Ask(1), Ask(2), Ask(3);
  EXPECT_TRUE(Ask(4, {.priority = 1}).queued);
  EXPECT_EQ(Take(), Ids{});
  EXPECT_EQ(refused_, (Refusals{{3, Refusal::kQueueFull}}));
  Finish(1);
  EXPECT_EQ(Take(), Ids{4});
  Finish(4);
  EXPECT_EQ(Take(), Ids{2});
}

TEST_F(QueueTest, Newcomer_DoesNotOvertakeThoseWhoWait) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4});
  Ask(1), Ask(2);
  Finish(1);
  EXPECT_TRUE(Ask(3).queued) << "2 was there before";
  EXPECT_EQ(Take(), Ids{2});
  EXPECT_TRUE(Ask(4, {.priority = 9}).queued);
  Finish(2);
  EXPECT_EQ(Take(), Ids{4});
}

TEST_F(QueueTest, Retry_WaitsForAnother_WithoutBlockingThoseBehind) {
  Start(2, {.max_in_flight_per_replica = 1, .queue_length = 4}, {.eject_after = 100});
  const ReplicaId first = *Ask(1).replica;
  const ReplicaId second = *Ask(2).replica;
  router_->OnAttemptFailed({1}, {OutcomeClass::kReplicaError}, now_);
  EXPECT_TRUE(Again(1, {first}).queued) << "the other one is full";
  EXPECT_TRUE(Ask(3).queued) << "1 was there before";
  EXPECT_EQ(Take(), Ids{3});
  Finish(2);
  EXPECT_EQ(Take(), Ids{1});
  EXPECT_EQ(router_->Why("1")->decision.reason, Reason::kRetry);
  EXPECT_EQ(*router_->Why("1")->decision.replica, second);
  EXPECT_EQ(router_->Why("1")->attempts, 2);
}

TEST_F(QueueTest, Room_ComesByANewReplicaAndByUndraining) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4});
  Ask(1), Ask(2), Ask(3);
  const ReplicaId added = Add("http://new");
  EXPECT_EQ(Take(), Ids{2});
  router_->SetDraining(added, true, now_);
  Finish(2);
  EXPECT_EQ(Take(), Ids{});
  router_->SetDraining(added, false, now_);
  EXPECT_EQ(Take(), Ids{3});
}

TEST_F(QueueTest, Pools_WaitApart) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 1});
  Add("http://other", {"n"});
  Ask(1), Ask(2, {.model = "n"});
  EXPECT_TRUE(Ask(3).queued);
  EXPECT_TRUE(Ask(4, {.model = "n"}).queued);
  EXPECT_EQ(Ask(5).refusal, Refusal::kQueueFull);
  Finish(2);
  EXPECT_EQ(Take(), Ids{4});
}

TEST_F(QueueTest, AllReplicasGoneWhileWaiting_ExpiresAsNoEndpoints) {
  Start(1, {.max_in_flight_per_replica = 1, .queue_length = 4, .queue_timeout = seconds(1)});
  Ask(1), Ask(2);
  router_->RemoveReplica(ids_[0], now_);
  EXPECT_EQ(Ask(3).refusal, Refusal::kNoEndpoints);
  TickAndTake(seconds(1));
  EXPECT_EQ(refused_, (Refusals{{2, Refusal::kNoEndpoints}}));
  EXPECT_EQ(router_->queue_stats().no_endpoints, 1u);
}

}  // namespace
}  // namespace kvring::router
