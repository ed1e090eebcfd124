// The façade: requests' lives, loads, health, epochs, membership; case ids in the names.
#include <map>
#include <set>

#include "tests/unit/router/core/router_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(RouterTest, Create_UnknownPolicy_IsNull) { EXPECT_EQ(Router::Create({.policy = "nope"}), nullptr); }

TEST_F(RouterTest, OnRequest_NoReplicas_RefusedWithRetryAfter) {
  Start("cache-aware", 0);
  const Sent sent = Ask(&Prompt("hello"));
  EXPECT_FALSE(sent.decision.replica);
  EXPECT_EQ(sent.decision.refusal, Refusal::kNoEndpoints);
  EXPECT_GE(sent.decision.retry_after, seconds(1));
  Finish(sent.id, OutcomeClass::kRefused);
  EXPECT_EQ(router_->totals().outcomes[static_cast<size_t>(OutcomeClass::kRefused)], 1u);
}

// POL-03: a replica that cannot serve takes part in nothing, whatever its load.
TEST_F(RouterTest, POL_03_DownReplicaWithoutLoad_DoesNotDisturbAffinity) {
  Start("cache-aware", 3);
  const std::string text = Text(1, 8000);
  const Sent first = Ask(&Prompt(text));
  Finish(first.id, OutcomeClass::kOk, 2000, 0);
  const ReplicaId home = *first.decision.replica;
  ReplicaId down = ids_[0] == home ? ids_[1] : ids_[0];
  for (int i = 0; i < 3; ++i) router_->OnProbe(down, false, now_);
  for (const ReplicaId id : ids_) {
    if (id == down) continue;
    router_->OnLoadReport(id, {.running = 5}, now_);
  }
  router_->OnLoadReport(down, {}, now_);
  const Sent again = Ask(&Prompt(text + " more"));
  EXPECT_EQ(*again.decision.replica, home);
  for (const Candidate& c : again.decision.candidates) EXPECT_NE(c.replica, down);
}

// POL-04: the load rises at dispatch, before any answer, and falls exactly once however the request ends.
TEST_F(RouterTest, POL_04_BurstOfSlowPrefills_IsSplit) {
  for (const char* policy : {"cache-aware", "least-requests", "least-prefill-tokens"}) {
    Start(policy, 2);
    std::map<ReplicaId, int> count;
    std::vector<Sent> sent;
    for (uint64_t i = 0; i < 8; ++i) {
      sent.push_back(Ask(&Prompt(Text(i, 32'000 * 4))));
      ++count[*sent.back().decision.replica];
    }
    EXPECT_EQ(count[ids_[0]], 4) << policy;
    EXPECT_EQ(View(ids_[0]).in_flight, 4);
    const OutcomeClass ends[] = {OutcomeClass::kOk,          OutcomeClass::kReplicaError,
                                 OutcomeClass::kTimeout,     OutcomeClass::kClientAbort,
                                 OutcomeClass::kStreamError, OutcomeClass::kBackpressure,
                                 OutcomeClass::kClientError, OutcomeClass::kOk};
    for (size_t i = 0; i < 8; ++i) {
      if (i % 2 == 0) router_->OnFirstToken(sent[i].id, now_);
      if (i % 3 == 0) Fail(sent[i].id, ends[i]);
      Finish(sent[i].id, ends[i]);
      Finish(sent[i].id, ends[i]);  // a late second report changes nothing
      router_->OnFirstToken(sent[i].id, now_);
    }
    ExpectAllGaugesZero();
    EXPECT_EQ(router_->totals().requests, 8u);
  }
}

TEST_F(RouterTest, POL_05_IdleFleetUniquePrompts_SpreadEvenly) {
  for (const std::string& policy : Router::PolicyNames()) {
    Start(policy, 4);
    std::map<ReplicaId, int> count;
    for (uint64_t i = 0; i < 1000; ++i) {
      const Sent sent = Ask(&Prompt(Text(i, 2000)), {}, SessionKey{MixBits(i)});
      ++count[*sent.decision.replica];
      now_ = now_ + milliseconds(10);
      Finish(sent.id, OutcomeClass::kOk, 500, 0);
    }
    for (const ReplicaId id : ids_) EXPECT_NEAR(count[id], 250, 60) << policy;
  }
}

TEST_F(RouterTest, POL_16_StaleLoadReports_AreNotUsed) {
  Start("least-requests", 2);
  router_->OnLoadReport(ids_[0], {.running = 0}, now_);
  const Sent own = Ask(&Prompt("x"), {ids_[1]});  // one in flight on replica 0
  ASSERT_EQ(*own.decision.replica, ids_[0]);
  now_ = now_ + seconds(30);
  router_->OnLoadReport(ids_[1], {.running = 3}, now_);
  now_ = now_ + seconds(1);
  EXPECT_TRUE(View(ids_[0]).load_stale);
  EXPECT_FALSE(View(ids_[1]).load_stale);
  EXPECT_EQ(*Ask(&Prompt("y")).decision.replica, ids_[0]);  // 1 own against 3 reported
  now_ = now_ + seconds(30);                                // both stale: own counts only, 2 against 0
  EXPECT_EQ(*Ask(&Prompt("z")).decision.replica, ids_[1]);
}

TEST_F(RouterTest, POL_20_NewEpoch_ForgetsTheCacheOfTheOldLife) {
  Start("cache-aware", 2);
  for (const ReplicaId id : ids_) router_->OnReplicaFacts(id, {.epoch = Epoch{1}, .models = {"m"}}, now_);
  const std::string text = Text(1, 8000);
  const Sent first = Ask(&Prompt(text));
  Finish(first.id, OutcomeClass::kOk, 2000, 0);
  EXPECT_GT(Ask(&Prompt(text)).decision.predicted_cached_tokens, 1900);
  router_->OnReplicaFacts(*first.decision.replica, {.epoch = Epoch{2}, .models = {"m"}}, now_);
  const Sent after = Ask(&Prompt(text));
  EXPECT_EQ(after.decision.predicted_cached_tokens, 0);
  for (const Candidate& c : after.decision.candidates) EXPECT_EQ(c.matched_tokens, 0);
}

TEST_F(RouterTest, POL_21_Pools_KeepModelsApart) {
  Start("cache-aware", 0);
  const ReplicaId a = Add("http://a", {"A"});
  const ReplicaId b = Add("http://b", {"B"}), c = Add("http://c", {"B"});
  const std::string text = Text(1, 8000);
  const Sent to_a = Ask(&Prompt(text, "A"), {}, {}, "A");
  EXPECT_EQ(*to_a.decision.replica, a);
  const Sent to_b = Ask(&Prompt(text, "B"), {}, {}, "B");
  EXPECT_TRUE(*to_b.decision.replica == b || *to_b.decision.replica == c);
  EXPECT_EQ(to_b.decision.predicted_cached_tokens, 0);
  for (const Candidate& candidate : to_b.decision.candidates) EXPECT_NE(candidate.replica, a);
  EXPECT_EQ(*Ask(&Prompt(text, "A"), {}, {}, "default").decision.replica, a);
  EXPECT_FALSE(Ask(&Prompt(text, "C"), {}, {}, "C").decision.replica);
  EXPECT_EQ(router_->Models(), (std::vector<std::string>{"A", "B"}));
}

TEST_F(RouterTest, POL_22_PromptsShorterThanABlock_StillCharge) {
  for (const char* policy : {"cache-aware", "least-prefill-tokens", "least-requests"}) {
    Start(policy, 2);
    std::map<ReplicaId, int> count;
    for (uint64_t i = 0; i < 12; ++i) ++count[*Ask(&Prompt(Text(i, 80))).decision.replica];
    EXPECT_NEAR(count[ids_[0]], 6, 1) << policy;
    EXPECT_GE(View(ids_[0]).pending_prefill_tokens, 5);
  }
}

TEST_F(RouterTest, POL_24_BacklogIsTokensNotRequests) {
  for (const char* policy : {"cache-aware", "least-prefill-tokens"}) {
    Start(policy, 2);
    for (uint64_t i = 0; i < 2; ++i) Ask(&Prompt(Text(i, 240'000)), {ids_[1]});
    for (uint64_t i = 0; i < 5; ++i) Ask(&Prompt(Text(10 + i, 400)), {ids_[0]});
    EXPECT_EQ(*Ask(&Prompt(Text(99, 4000))).decision.replica, ids_[1]) << policy;
  }
}

TEST_F(RouterTest, POL_25_FailingOwner_KeyGoesToTheNextMemberUntilItReturns) {
  Start("session-ring", 3, {.eject_after = 5});
  const SessionKey key{MixBits(77)};
  const ReplicaId owner = *Ask(&Prompt("a"), {}, key).decision.replica;
  Finish(RequestId{last_});
  const ReplicaId next = *Ask(&Prompt("a"), {owner}, key).decision.replica;
  Finish(RequestId{last_});
  int owner_saw = 0;
  for (int i = 0; i < 20; ++i) {
    const RequestId id{++last_};
    std::vector<ReplicaId> excluded;
    Decision d = router_->OnRequest({.id = id, .model = "m", .prompt = &Prompt("a"), .session = key}, now_);
    router_->OnDispatch(id, now_);
    if (*d.replica == owner) {
      ++owner_saw;
      Fail(id, OutcomeClass::kReplicaError);
      excluded = {owner};
      d = router_->OnRequest(
          {.id = id, .model = "m", .prompt = &Prompt("a"), .session = key, .excluded = excluded}, now_);
      EXPECT_EQ(d.reason, Reason::kRetry);
      router_->OnDispatch(id, now_);
    }
    EXPECT_EQ(*d.replica, next);
    Finish(id);
  }
  EXPECT_EQ(owner_saw, 5);
}

TEST_F(RouterTest, POL_26_TwoRouters_PutAllTurnsOfASessionTogether) {
  const auto a = Router::Create({.policy = "session-ring", .seed = 1}),
             b = Router::Create({.policy = "session-ring", .seed = 2});
  const std::vector<std::string> order = {"u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"};
  std::map<ReplicaId, std::string> names_a, names_b;
  for (const std::string& u : order) names_a[a->AddReplica({.url = u}, now_)] = u;
  for (auto it = order.rbegin(); it != order.rend(); ++it) names_b[b->AddReplica({.url = *it}, now_)] = *it;
  const PromptKey& prompt = Prompt("hi");
  int disagreements = 0;
  const auto place = [&](Router& router, std::map<ReplicaId, std::string>& names, uint64_t session) {
    const Decision d = router.OnRequest(
        {.id = RequestId{++last_}, .prompt = &prompt, .session = SessionKey{MixBits(session)}}, now_);
    router.OnComplete(RequestId{last_}, {}, now_);
    return names[*d.replica];
  };
  for (uint64_t s = 0; s < 10'000; ++s) ASSERT_EQ(place(*a, names_a, s), place(*b, names_b, s));
  names_a[a->AddReplica({.url = "u9"}, now_)] = "u9";  // b misses it for a while
  for (uint64_t s = 0; s < 1000; ++s) {
    const std::string at_a = place(*a, names_a, s);
    if (at_a == place(*b, names_b, s)) continue;
    EXPECT_EQ(at_a, "u9");
    ++disagreements;
  }
  EXPECT_LE(disagreements, 150);
  names_b[b->AddReplica({.url = "u9"}, now_)] = "u9";
  for (uint64_t s = 0; s < 1000; ++s) ASSERT_EQ(place(*a, names_a, s), place(*b, names_b, s));
}

TEST_F(RouterTest, HLT_02_Backpressure_CoolsAndNeverEjects) {
  Start("cache-aware", 1, {.eject_after = 5});
  for (int i = 0; i < 20; ++i) {
    const Sent sent = Ask(&Prompt("a"));
    ASSERT_TRUE(sent.decision.replica);
    Fail(sent.id, OutcomeClass::kBackpressure, seconds(2));
    Finish(sent.id, OutcomeClass::kBackpressure);
  }
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kUp);
  EXPECT_EQ(View(ids_[0]).failures, 0u);
  EXPECT_TRUE(Ask(&Prompt("a")).decision.replica);
  const ReplicaId other = Add("http://other", {"m"});  // while it cools, another one is preferred
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*Ask(&Prompt("a")).decision.replica, other);
  now_ = now_ + milliseconds(2100);
  std::set<ReplicaId> used;
  for (uint64_t i = 0; i < 20; ++i) used.insert(*Ask(&Prompt(Text(i, 3000))).decision.replica);
  EXPECT_EQ(used.size(), 2u);
}

TEST_F(RouterTest, HLT_03_HalfOpen_OneTrialAtATime) {
  Start("round-robin", 3,
        {.healthy_after = 1, .eject_after = 5, .eject_time = seconds(10), .slow_start = seconds(0)});
  const ReplicaId bad = ids_[0];
  const auto eject = [&] {
    for (int i = 0; i < 5; ++i) {
      const Sent sent = Ask(&Prompt("a"), {ids_[1], ids_[2]});
      Fail(sent.id, OutcomeClass::kReplicaError);
      Finish(sent.id, OutcomeClass::kReplicaError);
    }
  };
  eject();
  EXPECT_EQ(View(bad).state, ReplicaState::kEjected);
  now_ = now_ + milliseconds(9999);
  for (int i = 0; i < 6; ++i) EXPECT_NE(*Ask(&Prompt("a")).decision.replica, bad);
  now_ = now_ + milliseconds(1);
  std::vector<Sent> three;
  for (int i = 0; i < 3; ++i) three.push_back(Ask(&Prompt("a")));
  EXPECT_EQ(*three[0].decision.replica, bad);
  EXPECT_NE(*three[1].decision.replica, bad);
  EXPECT_NE(*three[2].decision.replica, bad);
  Fail(three[0].id, OutcomeClass::kTimeout);  // the trial fails: ejected again, for twice as long
  now_ = now_ + milliseconds(19'999);
  for (int i = 0; i < 6; ++i) EXPECT_NE(*Ask(&Prompt("a")).decision.replica, bad);
  now_ = now_ + milliseconds(1);
  const Sent trial = Ask(&Prompt("a"));
  EXPECT_EQ(*trial.decision.replica, bad);
  Finish(trial.id);
  EXPECT_EQ(View(bad).state, ReplicaState::kUp);
  int picked = 0;
  for (int i = 0; i < 9; ++i) picked += *Ask(&Prompt("a")).decision.replica == bad;
  EXPECT_EQ(picked, 3);
}

TEST_F(RouterTest, HLT_03_TrialEndsByClientAbort_NextRequestIsTheTrial) {
  Start("round-robin", 2, {.eject_after = 1});
  const Sent fails = Ask(&Prompt("a"), {ids_[1]});
  Fail(fails.id, OutcomeClass::kReplicaError);
  now_ = now_ + seconds(10);
  const Sent aborted = Ask(&Prompt("a"));
  EXPECT_EQ(*aborted.decision.replica, ids_[0]);
  Finish(aborted.id, OutcomeClass::kClientAbort);
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kEjected);
  EXPECT_EQ(*Ask(&Prompt("a")).decision.replica, ids_[0]);
}

TEST_F(RouterTest, Panic_MoreThanHalfEjected_RoutesToAllButNeverToDraining) {
  Start("round-robin", 4, {.eject_after = 1});
  router_->SetDraining(ids_[3], true, now_);
  for (const size_t bad : {0, 1}) {
    std::vector<ReplicaId> others;
    for (const ReplicaId id : ids_) {
      if (id != ids_[bad]) others.push_back(id);
    }
    const Sent sent = Ask(&Prompt("a"), others);
    Fail(sent.id, OutcomeClass::kReplicaError);
    if (bad > 0) continue;
    EXPECT_EQ(*Ask(&Prompt("b"), {ids_[1]}).decision.replica, ids_[2]);
  }
  std::set<ReplicaId> used;
  for (int i = 0; i < 9; ++i) used.insert(*Ask(&Prompt("a")).decision.replica);
  EXPECT_EQ(used, (std::set<ReplicaId>{ids_[0], ids_[1], ids_[2]}));
}

TEST_F(RouterTest, Draining_FinishesRunningAndTakesNoNew) {
  Start("cache-aware", 2);
  const std::string text = Text(1, 8000);
  const Sent running = Ask(&Prompt(text));
  router_->SetDraining(*running.decision.replica, true, now_);
  EXPECT_EQ(View(*running.decision.replica).state, ReplicaState::kDraining);
  for (int i = 0; i < 10; ++i) EXPECT_NE(*Ask(&Prompt(text)).decision.replica, *running.decision.replica);
  Finish(running.id);
  EXPECT_EQ(View(*running.decision.replica).in_flight, 0);
}

TEST_F(RouterTest, Draining_ByOperatorAndByReplica_EachEndsByItsOwnWordOnly) {
  Start("round-robin", 1);
  router_->SetDraining(ids_[0], true, now_);
  router_->OnReplicaFacts(ids_[0], {.epoch = {7}, .models = {"m"}, .draining = false}, now_);
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kDraining);
  router_->OnReplicaFacts(ids_[0], {.epoch = {7}, .models = {"m"}, .draining = true}, now_);
  router_->SetDraining(ids_[0], false, now_);
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kDraining);
  router_->OnReplicaFacts(ids_[0], {.epoch = {7}, .models = {"m"}, .draining = false}, now_);
  EXPECT_EQ(View(ids_[0]).state, ReplicaState::kUp);
}

TEST_F(RouterTest, HLT_13_RemovedWithRequestsInFlight_OldAndNewAreSeparate) {
  Start("round-robin", 2);
  std::vector<Sent> streams;
  for (int i = 0; i < 10; ++i) streams.push_back(Ask(&Prompt(Text(1, 3000)), {ids_[0]}));
  router_->RemoveReplica(ids_[1], now_);
  const ReplicaId again = router_->AddReplica({.url = "http://10.0.0.2:8000", .models = {"m"}}, now_);
  router_->OnProbe(again, true, now_);
  EXPECT_NE(again, ids_[1]);
  const Sent fresh = Ask(&Prompt("b"), {ids_[0]});
  EXPECT_EQ(*fresh.decision.replica, again);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(View(again).in_flight, 1);
    if (i % 2 == 0) Fail(streams[static_cast<size_t>(i)].id, OutcomeClass::kReplicaError);
    Finish(streams[static_cast<size_t>(i)].id, i % 2 == 0 ? OutcomeClass::kStreamError : OutcomeClass::kOk,
           750, 0);
  }
  EXPECT_EQ(View(again).failures, 0u);
  Finish(fresh.id);
  ExpectAllGaugesZero();
  EXPECT_EQ(router_->totals().requests, 11u);
  EXPECT_EQ(router_->totals().outcomes[static_cast<size_t>(OutcomeClass::kStreamError)], 5u);
}

TEST_F(RouterTest, HLT_15_EachFailingAttempt_CountsForItsOwnReplica) {
  Start("round-robin", 3, {.eject_after = 100});
  const RequestId id{++last_};
  std::vector<ReplicaId> excluded;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Decision d = router_->OnRequest(
        {.id = id, .name = "req-7", .model = "m", .prompt = &Prompt("a"), .excluded = excluded}, now_);
    router_->OnDispatch(id, now_);
    if (attempt < 2) Fail(id, OutcomeClass::kReplicaError);
    excluded.push_back(*d.replica);
  }
  Finish(id);
  EXPECT_EQ(View(excluded[0]).failures, 1u);
  EXPECT_EQ(View(excluded[1]).failures, 1u);
  EXPECT_EQ(View(excluded[2]).failures, 0u);
  const auto why = router_->Why("req-7");
  ASSERT_TRUE(why);
  EXPECT_EQ(why->attempts, 3);
  EXPECT_EQ(why->decision.reason, Reason::kRetry);
  EXPECT_EQ(*why->decision.replica, excluded[2]);
  EXPECT_TRUE(why->complete);
}

TEST_F(RouterTest, Retry_AllExcluded_IsRefused) {
  Start("cache-aware", 2);
  EXPECT_EQ(Ask(&Prompt("a"), ids_).decision.refusal, Refusal::kNoEndpoints);
}

TEST_F(RouterTest, TokenPrompts_BlockSizeKnown_PredictExactly) {
  Start("cache-aware", 2);
  for (const ReplicaId id : ids_)
    router_->OnReplicaFacts(id, {.epoch = Epoch{1}, .models = {"m"}, .block_size = 16}, now_);
  std::vector<TokenId> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 7 % 1000);
  const PromptKey key = MakePromptKey({"m", {}, {}}, std::span<const TokenId>(tokens));
  const Sent first = Ask(&key);
  EXPECT_EQ(first.decision.prompt_tokens, 600);
  Finish(first.id, OutcomeClass::kOk, 600, 0);
  tokens.resize(1000, 5);
  const PromptKey longer = MakePromptKey({"m", {}, {}}, std::span<const TokenId>(tokens));
  const Sent second = Ask(&longer);
  EXPECT_EQ(*second.decision.replica, *first.decision.replica);
  EXPECT_EQ(second.decision.predicted_cached_tokens, 592);
  EXPECT_TRUE(second.decision.prediction_exact);
}

// POL-23 (a): the ids were never sent as ids; the replica told by cache events that it holds their blocks.
TEST_F(RouterTest, POL_23_TokenPromptAfterTheSameText_GoesToItsHolder) {
  std::vector<TokenId> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(5 + i);
  std::vector<CacheEvent> stored;
  BlockHash parent = ChainRoot({"m", {}, {}});
  for (const BlockHash block : HashChain(parent, std::span<const TokenId>(tokens), 16)) {
    stored.push_back({CacheEventKind::kStored, block, std::nullopt});
  }
  const PromptKey key = MakePromptKey({"m", {}, {}}, std::span<const TokenId>(tokens));
  const CacheEvent cleared{.kind = CacheEventKind::kCleared};
  for (const size_t holder : {1, 2, 3}) {
    Start("cache-aware", 4);
    for (const ReplicaId id : ids_) {
      router_->OnReplicaFacts(id, {.epoch = Epoch{1}, .models = {"m"}, .block_size = 16}, now_);
    }
    router_->OnCacheEvents(ids_[0], {Epoch{9}, 1, stored}, now_);  // of another life
    router_->OnCacheEvents(ids_[holder], {Epoch{1}, 1, stored}, now_);
    const Decision d = router_->OnRequest({.id = RequestId{++last_}, .model = "m", .prompt = &key}, now_);
    EXPECT_EQ(*d.replica, ids_[holder]);
    EXPECT_EQ(d.predicted_cached_tokens, 592);  // 37 blocks; the last half block is not whole
    EXPECT_TRUE(d.prediction_exact);
    router_->OnCacheEvents(ids_[holder], {Epoch{1}, 1 + stored.size(), {&cleared, 1}}, now_);
    const Decision after = router_->OnRequest({.id = RequestId{++last_}, .model = "m", .prompt = &key}, now_);
    EXPECT_EQ(after.predicted_cached_tokens, 0);
  }
}

TEST_F(RouterTest, Warnings_SessionRingWithoutKeys_SaysSo) {
  Start("session-ring", 2);
  EXPECT_TRUE(router_->Warnings().empty());
  Finish(Ask(&Prompt("a")).id);
  ASSERT_EQ(router_->Warnings().size(), 1u);
  EXPECT_EQ(router_->Warnings()[0], "session-ring: no session key on 1 of 1 requests");
}

}  // namespace
}  // namespace kvring::router
