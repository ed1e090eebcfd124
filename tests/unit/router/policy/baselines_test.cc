// The rules of other routers: which side of each threshold decides what.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "router/policy/policy.h"

namespace kvring::router {
namespace {

class BaselinesTest : public ::testing::Test {
 protected:
  void Add(int count) {
    for (int i = 0; i < count; ++i) {
      Replica& replica = table_.Add({.url = "http://r" + std::to_string(table_.members().size())});
      replica.health.OnProbe(true, {});
      table_.Changed();
    }
  }
  Replica& At(uint32_t slot) { return *table_.at(slot); }
  void InFlight(uint32_t slot, int32_t n) { At(slot).load.in_flight = n; }
  /// The first `blocks` index blocks (64 tokens) of the prompt.
  void Holds(uint32_t slot, size_t blocks) {
    const PromptKey head = MakePromptKey({}, std::string_view(text_).substr(0, blocks * kIndexBlockBytes));
    belief_.index().Insert({.prompt = &head}, slot);
  }
  void Report(uint32_t slot, const LoadReport& report) { table_.OnLoadReport(At(slot), report, now_); }

  Pick Choose(Policy& policy, const std::string& text) {
    const PromptKey prompt = MakePromptKey({}, std::string_view(text));
    ResidencyPath path;
    belief_.index().Locate(prompt, path);
    return policy.Choose({.fleet = table_,
                          .belief = belief_,
                          .path = path,
                          .eligible = table_.PoolOf("", now_).eligible,
                          .prompt = prompt,
                          .prompt_tokens = static_cast<int64_t>(text.size()) / 4,
                          .now = now_},
                         random_);
  }
  /// Everything that it picks in 60 tries, so that ties show as a set of several.
  std::set<uint32_t> Picks(const char* policy) {
    std::set<uint32_t> picks;
    for (int i = 0; i < 60; ++i) picks.insert(Choose(*MakePolicy(policy), text_).slot);
    return picks;
  }
  Reason ReasonOf(const char* policy) { return Choose(*MakePolicy(policy), text_).reason; }

  using Slots = std::set<uint32_t>;
  std::string text_ = std::string(10 * kIndexBlockBytes, 'x');  // 640 tokens
  ReplicaTable table_{HealthRules{}};
  CacheBelief belief_{2 << 20};
  Random random_{11};
  Instant now_{1'000'000'000};
};

TEST_F(BaselinesTest, SglangLike_MatchAboveThreeTenths_GoesToTheDeepest_AtItToTheLeastLoaded) {
  Add(3);
  InFlight(0, 20), InFlight(1, 10), InFlight(2, 11);
  Holds(0, 3);  // 0.3 of the prompt: not more
  EXPECT_EQ(Picks("sglang-like"), Slots{1});
  EXPECT_EQ(ReasonOf("sglang-like"), Reason::kLeastLoad);
  Holds(0, 4);
  EXPECT_EQ(Picks("sglang-like"), Slots{0});
  EXPECT_EQ(ReasonOf("sglang-like"), Reason::kPrefix);
}

TEST_F(BaselinesTest, SglangLike_Imbalance_NeedsBothThresholds) {
  Add(2);
  Holds(0, 9);
  InFlight(0, 64), InFlight(1, 0);
  EXPECT_EQ(Picks("sglang-like"), Slots{0}) << "a difference of 64 is not above 64";
  InFlight(0, 65);
  EXPECT_EQ(Picks("sglang-like"), Slots{1});
  InFlight(0, 300), InFlight(1, 200);
  EXPECT_EQ(Picks("sglang-like"), Slots{0}) << "300 is not above 1.5 · 200";
  InFlight(0, 301);
  EXPECT_EQ(Picks("sglang-like"), Slots{1});
}

// Scores by hand: 3 · match + 2 · queue + 2 · (1 − use).
TEST_F(BaselinesTest, LlmdLike_WeighsPrefixQueueAndKvUse) {
  Add(3);
  for (uint32_t slot = 0; slot < 3; ++slot) At(slot).kv_tokens = 1000;
  EXPECT_EQ(Picks("llmd-like"), (Slots{0, 1, 2})) << "ties are drawn";
  Holds(0, 5);
  EXPECT_EQ(Picks("llmd-like"), Slots{0});  // 5.5 : 4 : 4
  Report(0, {.kv_used_tokens = 760});       // 1.5 + 2 + 0.48 = 3.98 : 4 : 4
  EXPECT_EQ(Picks("llmd-like"), (Slots{1, 2}));
  Report(0, {.kv_used_tokens = 740});  // 4.02
  EXPECT_EQ(Picks("llmd-like"), Slots{0});
  Report(1, {.waiting = 4});  // 4.02 : 0 + 0 + 2 : 4
  Report(0, {.waiting = 3});  // 1.5 + 0.5 + 2 = 4 = 4 of slot 2
  EXPECT_EQ(Picks("llmd-like"), (Slots{0, 2}));
}

TEST_F(BaselinesTest, LlmdSticky_HolderKeepsItsPrefixUntilSaturated) {
  Add(3);
  for (uint32_t slot = 0; slot < 3; ++slot) At(slot).kv_tokens = 1000;
  Holds(0, 2);
  Report(0, {.waiting = 5, .kv_used_tokens = 800});
  EXPECT_EQ(Picks("llmd-sticky"), Slots{0});
  Report(0, {.waiting = 6, .kv_used_tokens = 800});
  EXPECT_EQ(Picks("llmd-sticky"), (Slots{1, 2}));
  EXPECT_EQ(ReasonOf("llmd-sticky"), Reason::kSpill);
  Report(0, {.waiting = 5, .kv_used_tokens = 801});
  EXPECT_EQ(Picks("llmd-sticky"), (Slots{1, 2}));
  Report(1, {.waiting = 9}), Report(2, {.waiting = 9});
  EXPECT_EQ(Picks("llmd-sticky"), Slots{0}) << "all are saturated: by score";
}

TEST_F(BaselinesTest, DynamoLike_UncachedPrefillAndActiveBlocks) {
  Add(2);
  Holds(0, 5);  // 320 tokens = 20 blocks less to prefill
  EXPECT_EQ(Picks("dynamo-like"), Slots{0});
  Report(0, {.kv_used_tokens = 319}), Report(1, {});
  EXPECT_EQ(Picks("dynamo-like"), Slots{0});
  Report(0, {.kv_used_tokens = 320});
  EXPECT_EQ(Picks("dynamo-like"), (Slots{0, 1}));
  Report(0, {.kv_used_tokens = 320, .pending_prefill_tokens = 16});
  EXPECT_EQ(Picks("dynamo-like"), Slots{1});
}

TEST_F(BaselinesTest, Lmetric_ProductOfPendingTokensAndBatch) {
  Add(2);
  Holds(0, 5);  // 320 : 640 tokens
  InFlight(0, 0), InFlight(1, 0);
  EXPECT_EQ(Picks("lmetric"), Slots{0});
  InFlight(0, 3), InFlight(1, 1);  // 320 · 4 = 640 · 2
  EXPECT_EQ(Picks("lmetric"), (Slots{0, 1}));
  InFlight(0, 4);
  EXPECT_EQ(Picks("lmetric"), Slots{1});
  At(1).load.pending_prefill_tokens = 161;  // (640 + 161) · 2 = 1602 > 320 · 5
  EXPECT_EQ(Picks("lmetric"), Slots{0});
}

TEST_F(BaselinesTest, KubeaiChwbl_FirstHundredCharactersAreTheKey_LoadIsBounded) {
  Add(8);
  const auto policy = MakePolicy("kubeai-chwbl");
  const std::string head(100, 'h');
  const Pick home = Choose(*policy, head + "one");
  EXPECT_EQ(home.reason, Reason::kRing);
  std::set<uint32_t> homes;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Choose(*policy, head + std::to_string(i) + text_).slot, home.slot);
    homes.insert(Choose(*policy, std::string(99, 'h') + static_cast<char>('A' + i % 26) + text_).slot);
  }
  EXPECT_GT(homes.size(), 4u) << "the hundredth character counts";
  for (int sent = 1; sent <= 80; ++sent) {
    const Pick pick = Choose(*policy, head + "same");
    ++At(pick.slot).load.in_flight;
    EXPECT_LE(At(pick.slot).load.in_flight, std::ceil(1.25 * sent / 8)) << sent;
  }
  EXPECT_EQ(Choose(*policy, head + "same").reason, Reason::kSpill);
}

}  // namespace
}  // namespace kvring::router
