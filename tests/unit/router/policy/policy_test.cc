#include "router/policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "router/policy/branch_sketch.h"

namespace kvring::router {
namespace {

class PolicyTest : public ::testing::Test {
 protected:
  Replica& Add(double weight = 1) {
    Replica& replica =
        table_.Add({.url = "http://r" + std::to_string(table_.members().size()), .weight = weight});
    replica.health.OnProbe(true, {});
    table_.Changed();
    return replica;
  }
  Pick Choose(Policy& policy, const PromptKey& prompt, std::optional<SessionKey> session = {}) {
    ResidencyPath path;
    belief_.index().Locate(prompt, path);
    return policy.Choose(
        {.fleet = table_,
         .belief = belief_,
         .path = path,
         .eligible = table_.PoolOf("", now_).eligible,
         .prompt = prompt,
         .prompt_tokens = std::max<int64_t>(static_cast<int64_t>(prompt.bytes.size()) / 4, 1),
         .session = session,
         .now = now_},
        random_);
  }
  std::map<uint32_t, double> Shares(const char* name, int picks = 100'000) {
    const auto policy = MakePolicy(name);
    std::map<uint32_t, double> shares;
    for (int i = 0; i < picks; ++i) {
      const std::string text = "prompt " + std::to_string(i);
      shares[Choose(*policy, MakePromptKey({}, std::string_view(text)),
                    SessionKey{MixBits(static_cast<uint64_t>(i))})
                 .slot] += 1.0 / picks;
    }
    return shares;
  }

  ReplicaTable table_{HealthRules{}};
  CacheBelief belief_{2 << 20};
  Random random_{11};
  Instant now_{1'000'000'000};
};

TEST_F(PolicyTest, MakePolicy_EveryNameAndAlias) {
  for (const std::string& name : PolicyNames()) EXPECT_NE(MakePolicy(name), nullptr) << name;
  EXPECT_NE(MakePolicy("lpwl"), nullptr);
  EXPECT_EQ(MakePolicy("cache_aware"), nullptr);
}

TEST_F(PolicyTest, ShareOfPicks_EqualIdleReplicas_OnePercent) {
  for (int i = 0; i < 5; ++i) Add();
  for (const char* name :
       {"round-robin", "random", "least-requests", "least-prefill-tokens", "power-of-two", "cache-aware"}) {
    for (const auto& [slot, share] : Shares(name)) EXPECT_NEAR(share, 0.2, 0.01) << name << " " << slot;
  }
}

TEST_F(PolicyTest, ShareOfPicks_Weights_OnePercent) {
  Add(1), Add(2), Add(1);
  for (const char* name : {"round-robin", "random"}) {
    auto shares = Shares(name);
    EXPECT_NEAR(shares[0], 0.25, 0.01) << name;
    EXPECT_NEAR(shares[1], 0.50, 0.01) << name;
  }
  auto shares = Shares("cache-aware");
  EXPECT_NEAR(shares[1], 0.50, 0.03);
}

TEST_F(PolicyTest, RoundRobin_Weighted_IsSmooth) {
  Add(2), Add(1);
  const auto policy = MakePolicy("round-robin");
  std::vector<uint32_t> picks;
  for (int i = 0; i < 6; ++i) picks.push_back(Choose(*policy, {}).slot);
  EXPECT_EQ(picks, (std::vector<uint32_t>{0, 1, 0, 0, 1, 0}));
}

TEST_F(PolicyTest, LeastRequests_FewestPerWeightWins) {
  Add(1).load.in_flight = 2;
  Add(4).load.in_flight = 5;
  EXPECT_EQ(Choose(*MakePolicy("least-requests"), {}).slot, 1u);
}

TEST_F(PolicyTest, PowerOfTwo_MostLoadedIsNeverPickedOfTwo) {
  Add().load.in_flight = 9;
  Add();
  const auto policy = MakePolicy("power-of-two");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Choose(*policy, {}).slot, 1u);
}

TEST_F(PolicyTest, CacheAware_LargeFleet_FindsTheHolderAmongAThousand) {
  for (int i = 0; i < 1000; ++i) Add();
  const auto policy = MakePolicy("cache-aware");
  for (uint32_t i = 0; i < 200; ++i) {
    std::string text(8000, 'a');
    for (char& c : text) c = static_cast<char>('a' + random_.Below(26));
    const PromptKey key = MakePromptKey({}, std::string_view(text));
    const uint32_t holder = i * 5 % 1000;
    belief_.index().Insert({.prompt = &key}, holder);
    const Pick pick = Choose(*policy, key);
    EXPECT_EQ(pick.slot, holder);
    EXPECT_EQ(pick.reason, Reason::kPrefix);
    EXPECT_LE(pick.candidates.size(), 10u);
    EXPECT_EQ(pick.candidates.front().matched_tokens, 31 * 64);
  }
}

TEST_F(PolicyTest, CacheAware_BusyHolder_SpillsAndSaysSo) {
  Replica& holder = Add();
  Add();
  const std::string text(4000, 'a');
  const PromptKey key = MakePromptKey({}, std::string_view(text));
  belief_.index().Insert({.prompt = &key}, holder.slot);
  const auto policy = MakePolicy("cache-aware");
  EXPECT_EQ(Choose(*policy, key).slot, holder.slot);
  holder.load = {.in_flight = 50, .awaiting_first_token = 50, .pending_prefill_tokens = 100'000};
  holder.prefill_free_at = now_ + std::chrono::seconds(10);
  const Pick pick = Choose(*policy, key);
  EXPECT_NE(pick.slot, holder.slot);
  EXPECT_EQ(pick.reason, Reason::kSpill);
}

TEST(BranchSketch, CommonHeadOfAnyLength_KeyIsWhereTrafficBranches) {
  for (const size_t head : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}}) {
    BranchSketch sketch;
    std::string common(head * 256, 'h');
    std::map<uint64_t, int> keys;
    for (int i = 0; i < 2000; ++i) {
      std::string text = common + std::string(256, static_cast<char>('a' + i % 20)) +
                         std::string((head + 20) * 256, static_cast<char>('A' + i % 7));
      const PromptKey key = MakePromptKey({}, std::string_view(text));
      sketch.Count(key);
      if (i > 1000) ++keys[sketch.BranchKey(key, 1.0 / 8)];
    }
    EXPECT_GE(keys.size(), 20u) << head;   // the branches are told apart
    EXPECT_LE(keys.size(), 140u) << head;  // and not every prompt is its own
  }
}

TEST(BranchSketch, RareHead_KeyIsTheFirstBlock) {
  BranchSketch sketch;
  for (int i = 0; i < 1000; ++i) {
    const std::string text =
        std::string(512, static_cast<char>('a' + i % 25)) + std::to_string(i) + std::string(3000, 'x');
    const PromptKey key = MakePromptKey({}, std::string_view(text));
    sketch.Count(key);
    if (i > 100) {
      EXPECT_EQ(sketch.BranchKey(key, 1.0 / 8), key.chain[0].value);
    }
  }
}

}  // namespace
}  // namespace kvring::router
