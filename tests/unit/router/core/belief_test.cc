// What the façade believes of caches and loads where engines tell little, wrong or nothing.
#include <utility>

#include "tests/unit/router/core/router_fixture.h"

namespace kvring::router {
namespace {

using std::chrono::seconds;

class BeliefTest : public RouterTest {
 protected:
  static std::vector<TokenId> Tokens(size_t count, TokenId first = 5) {
    std::vector<TokenId> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
    return tokens;
  }
  /// What an engine with blocks of that size tells when it stored the tokens.
  static std::vector<CacheEvent> Stored(const std::vector<TokenId>& tokens, size_t block_tokens) {
    std::vector<CacheEvent> events;
    std::optional<BlockHash> parent;
    for (const BlockHash block :
         HashChain(ChainRoot({"m", {}, {}}), std::span<const TokenId>(tokens), block_tokens)) {
      events.push_back({CacheEventKind::kStored, block, std::exchange(parent, block)});
    }
    return events;
  }
  void Meet(ReplicaId id, int32_t block_size) {
    router_->OnReplicaFacts(id, {.epoch = Epoch{1}, .models = {"m"}, .block_size = block_size}, now_);
  }
  int64_t Predicted(const std::vector<TokenId>& tokens, ReplicaId only) {
    const PromptKey key = MakePromptKey({"m", {}, {}}, std::span<const TokenId>(tokens));
    std::vector<ReplicaId> others;
    for (const ReplicaId id : ids_) {
      if (id != only) others.push_back(id);
    }
    const RequestId id{++last_};
    const Decision d = router_->OnRequest({.id = id, .model = "m", .prompt = &key, .excluded = others}, now_);
    router_->OnComplete(id, {.outcome = OutcomeClass::kClientAbort}, now_);
    return d.replica == only ? d.predicted_cached_tokens : -1;
  }
  bool Warns(std::string_view part) {
    for (const std::string& warning : router_->Warnings()) {
      if (warning.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(BeliefTest, PFX_11_UnknownParent_ReplicaIsScoredByLoadUntilTheSnapshot) {
  Start("cache-aware", 2);
  for (const ReplicaId id : ids_) Meet(id, 16);
  const std::vector<TokenId> tokens = Tokens(80);
  const std::vector<CacheEvent> all = Stored(tokens, 16);  // B1 to B5; the index knows of none yet
  const std::span<const CacheEvent> late = std::span(all).subspan(2);
  const EventsTaken taken = router_->OnCacheEvents(ids_[0], {Epoch{1}, 3, late}, now_);
  EXPECT_EQ(taken.fate, BatchFate::kGap);
  EXPECT_EQ(taken.wanted, 0u);
  EXPECT_EQ(Predicted(tokens, ids_[0]), 0);
  EXPECT_EQ(View(ids_[0]).events.gaps, 1u);
  EXPECT_TRUE(Warns("cache events are missing"));
  router_->OnCacheEvents(
      ids_[0], {.epoch = Epoch{1}, .first_sequence = 6, .events = all, .start = BatchStart::kSnapshot}, now_);
  EXPECT_EQ(Predicted(tokens, ids_[0]), 64);  // B5 ends with the last token, which is computed anew
  EXPECT_FALSE(Warns("cache events are missing"));
  EXPECT_EQ(View(ids_[0]).events.state, EventsState::kWhole);
}

TEST_F(BeliefTest, PFX_14_UnitOfSixtyFour_IsAllOrNothing) {
  Start("cache-aware", 2);
  for (const ReplicaId id : ids_) Meet(id, 16);
  const std::vector<TokenId> unit = Tokens(64);
  router_->OnCacheEvents(
      ids_[0], {.epoch = Epoch{1}, .first_sequence = 1, .events = Stored(unit, 64), .block_tokens = 64},
      now_);
  for (const size_t shared : {16, 32, 48, 64}) {
    std::vector<TokenId> prompt(unit.begin(), unit.begin() + static_cast<ptrdiff_t>(shared));
    prompt.resize(shared + 40, 7);
    EXPECT_EQ(Predicted(prompt, ids_[0]), shared == 64 ? 64 : 0);
  }
}

TEST_F(BeliefTest, PFX_15_PoolOfTwoBlockSizes_EachIsAskedInItsOwn) {
  Start("cache-aware", 2);
  Meet(ids_[0], 16);
  Meet(ids_[1], 64);
  const std::vector<TokenId> tokens = Tokens(150);
  router_->OnCacheEvents(ids_[0], {Epoch{1}, 1, Stored(tokens, 16)}, now_);
  router_->OnCacheEvents(ids_[1], {Epoch{1}, 1, Stored(tokens, 64)}, now_);
  EXPECT_EQ(Predicted(tokens, ids_[0]), 144);
  EXPECT_EQ(Predicted(tokens, ids_[1]), 128);
}

TEST_F(BeliefTest, PFX_15_NothingForeseenYetMuchFound_Alarms) {
  Start("cache-aware", 1);
  for (int i = 0; i < 999; ++i)
    Finish(Ask(&Prompt(Text(static_cast<uint64_t>(i), 1000))).id, OutcomeClass::kOk, 250, 16);
  EXPECT_FALSE(Warns("predictions:"));
  Finish(Ask(&Prompt(Text(5000, 1000))).id, OutcomeClass::kOk, 250, 16);
  EXPECT_TRUE(Warns("predictions:"));
  for (int i = 0; i < 10; ++i)
    Finish(Ask(&Prompt(Text(5000, 1000))).id, OutcomeClass::kOk, 250, 240);  // foreseen: all is well
  EXPECT_FALSE(Warns("predictions:"));
}

TEST_F(BeliefTest, PFX_15_EnginesThatFindLittle_AreNoAlarm) {
  Start("cache-aware", 1);
  for (int i = 0; i < 1500; ++i)
    Finish(Ask(&Prompt(Text(static_cast<uint64_t>(i), 1000))).id, OutcomeClass::kOk, 250, 12);
  EXPECT_FALSE(Warns("predictions:"));
}

TEST_F(BeliefTest, OBS_01_CountsThatCannotBe_ArePutRightAndCounted) {
  Start("cache-aware", 1);
  const Sent more = Ask(&Prompt("a"));
  router_->OnAdmitted(more.id, {.prompt_tokens = 17'050, .cached_tokens = 768}, now_);
  Finish(more.id, OutcomeClass::kOk, 17'050, 768 + 17'000);  // more than there was
  const Sent negative = Ask(&Prompt("b"));
  router_->OnAdmitted(negative.id, {.prompt_tokens = 100, .cached_tokens = 300}, now_);
  router_->OnFirstToken(negative.id, now_);
  Finish(negative.id, OutcomeClass::kOk, 100, -7'680);
  EXPECT_EQ(router_->usage_anomalies(), 3u);
  EXPECT_EQ(router_->totals().cached_tokens, 17'050u);
  EXPECT_EQ(router_->totals().prompt_tokens, 17'150u);
  EXPECT_EQ(View(ids_[0]).cached_tokens, 17'050u);
  ExpectAllGaugesZero();
}

TEST_F(BeliefTest, POL_15_LoadThatCannotBeRead_IsNeverZero_OwnCountsDecide) {
  for (const char* policy : {"power-of-two", "least-requests"}) {
    Start(policy, 2);
    // Replica 0 answers ten times slower: at any time most of what it has is still running.
    std::vector<std::pair<int, RequestId>> running;
    int to_slow = 0;
    for (int i = 0; i < 1000; ++i) {
      for (const ReplicaId id : ids_) router_->OnLoadUnknown(id, "/metrics answers 404");
      const Sent sent = Ask(nullptr);
      const bool slow = *sent.decision.replica == ids_[0];
      to_slow += slow;
      running.push_back({i + (slow ? 100 : 10), sent.id});
      std::erase_if(running, [&](const auto& entry) {
        if (entry.first > i) return false;
        Finish(entry.second);
        return true;
      });
    }
    EXPECT_LT(to_slow, 250) << policy;
    EXPECT_EQ(View(ids_[0]).load_errors, 1000u);
    EXPECT_TRUE(View(ids_[0]).load_stale);
    EXPECT_TRUE(Warns("load unknown (/metrics answers 404)"));
    router_->OnLoadReport(ids_[0], {.running = 3}, now_);
    router_->OnLoadReport(ids_[1], {.running = 3}, now_);
    EXPECT_FALSE(Warns("load unknown"));
  }
}

// Its prefix cache is off: that is no small cache, whose size would be learnt, but something to tell.
TEST_F(BeliefTest, Capacity_NothingIsEverFound_IsAWarningAndNotLearnt) {
  Start("cache-aware", 1);
  for (int i = 0; i < 101; ++i) Finish(Ask(&Prompt(Text(1, 4000))).id, OutcomeClass::kOk, 1000, 0);
  EXPECT_EQ(View(ids_[0]).kv_capacity_tokens, 0);
  EXPECT_TRUE(Warns("reports no cached tokens"));
  Finish(Ask(&Prompt(Text(1, 4000))).id, OutcomeClass::kOk, 1000, 992);
  EXPECT_FALSE(Warns("reports no cached tokens"));
}

// An engine with an LRU of whole conversations, whose size nobody told.
TEST_F(BeliefTest, Capacity_NotTold_IsLearntFromWhatWasEvicted) {
  constexpr int64_t kCapacity = 40'000;
  Start("cache-aware", 1);
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 60; ++i) texts.push_back(Text(i, 4 * 1000));  // 60,000 tokens in all
  std::vector<size_t> lru;
  Random random(9);
  for (int i = 0; i < 1500; ++i) {
    // Half of the requests are for a tenth of the prompts.
    const size_t pick = random.Below(2) == 0 ? random.Below(6) : random.Below(60);
    const auto held = std::find(lru.begin(), lru.end(), pick);
    const bool hit = held != lru.end();
    if (hit) lru.erase(held);
    lru.push_back(pick);
    if (lru.size() > kCapacity / 1000) lru.erase(lru.begin());
    Finish(Ask(&Prompt(texts[pick])).id, OutcomeClass::kOk, 1000, hit ? 992 : 0);
  }
  const ReplicaView view = View(ids_[0]);
  EXPECT_EQ(view.kv_source, CapacitySource::kLearnt);
  EXPECT_GT(view.kv_capacity_tokens, kCapacity * 7 / 10);
  EXPECT_LT(view.kv_capacity_tokens, kCapacity * 12 / 10);
  router_->OnReplicaFacts(ids_[0], {.kv_tokens = 50'000, .kv_source = CapacitySource::kMetrics}, now_);
  EXPECT_EQ(View(ids_[0]).kv_source, CapacitySource::kMetrics);
  EXPECT_EQ(View(ids_[0]).kv_capacity_tokens, 50'000);
}

}  // namespace
}  // namespace kvring::router
