#include "router/policy/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/random.h"

namespace kvring::router {
namespace {

constexpr int kKeys = 100'000;

class RingTest : public ::testing::Test {
 protected:
  Replica& Add(const std::string& url, double weight = 1) {
    Replica& replica = table_.Add({.url = url, .weight = weight});
    replica.health.OnProbe(true, {});
    table_.Changed();
    return replica;
  }
  std::string Owner(uint64_t key) {
    ring_.Sync(table_);
    const auto& eligible = table_.PoolOf("", {1}).eligible;
    std::string url;
    ring_.Walk(key, eligible, 1, [&](uint32_t slot) {
      url = table_.at(slot)->url;
      return true;
    });
    return url;
  }
  std::vector<std::string> Owners(int keys = kKeys) {
    std::vector<std::string> owners;
    for (int k = 0; k < keys; ++k) owners.push_back(Owner(MixBits(static_cast<uint64_t>(k))));
    return owners;
  }

  ReplicaTable table_{HealthRules{}};
  Ring ring_;
};

TEST_F(RingTest, POL_07_NinthAdded_ElevenPercentMoveAndOnlyToIt) {
  for (int i = 0; i < 8; ++i) Add("http://10.0.0." + std::to_string(i) + ":8000");
  const auto before = Owners();
  Add("http://10.0.0.8:8000");
  const auto after = Owners();
  int moved = 0;
  for (int k = 0; k < kKeys; ++k) {
    if (before[k] == after[k]) continue;
    ++moved;
    ASSERT_EQ(after[k], "http://10.0.0.8:8000");
  }
  EXPECT_NEAR(moved / static_cast<double>(kKeys), 1.0 / 9, 0.02);
}

TEST_F(RingTest, POL_07_OneRemoved_OnlyItsKeysMove) {
  for (int i = 0; i < 8; ++i) Add("http://10.0.0." + std::to_string(i) + ":8000");
  const auto before = Owners();
  table_.Remove(*table_.FindByNameOrUrl("http://10.0.0.4:8000"));
  const auto after = Owners();
  for (int k = 0; k < kKeys; ++k) {
    if (before[k] != "http://10.0.0.4:8000") {
      ASSERT_EQ(before[k], after[k]);
    }
    ASSERT_NE(after[k], "http://10.0.0.4:8000");
  }
}

TEST_F(RingTest, POL_08_OrderOfMembers_DoesNotMatter) {
  for (const char* url : {"A", "B", "C", "D"}) Add(url);
  const auto first = Owners(10'000);
  ReplicaTable table{HealthRules{}};
  Ring ring;
  for (const char* url : {"D", "x", "B", "A", "y", "C"}) table.Add({.url = url});
  ring.Sync(table);
  table.Remove(*table.FindByNameOrUrl("x"));
  ring.Sync(table);
  table.Remove(*table.FindByNameOrUrl("y"));
  ring.Sync(table);
  std::vector<uint32_t> eligible;
  for (const Replica* member : table.members()) eligible.push_back(member->slot);
  for (int k = 0; k < 10'000; ++k) {
    ring.Walk(MixBits(static_cast<uint64_t>(k)), eligible, 1, [&](uint32_t slot) {
      EXPECT_EQ(table.at(slot)->url, first[k]);
      return true;
    });
  }
}

TEST_F(RingTest, POL_11_Weights_SharesAndSmallMoves) {
  Add("A", 1), Add("B", 2), Add("C", 1);
  auto share = [](const std::vector<std::string>& owners, const char* url) {
    return std::count(owners.begin(), owners.end(), url) / static_cast<double>(owners.size());
  };
  const auto before = Owners();
  EXPECT_NEAR(share(before, "A"), 0.25, 0.03);
  EXPECT_NEAR(share(before, "B"), 0.50, 0.03);
  EXPECT_NEAR(share(before, "C"), 0.25, 0.03);
  Add("C", 2);
  const auto raised = Owners();
  for (int k = 0; k < kKeys; ++k) {
    if (before[k] != raised[k]) {
      ASSERT_EQ(raised[k], "C");
    }
  }
  Add("C", 0);
  const auto without = Owners();
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_NE(without[k], "C");
    if (raised[k] != "C") {
      ASSERT_EQ(without[k], raised[k]);
    }
  }
}

TEST_F(RingTest, POL_12_HotKey_FillsTheRingInOrderUnderTheCap) {
  for (const char* url : {"A", "B", "C", "D"}) Add(url);
  std::vector<uint32_t> order;
  std::map<uint32_t, int> load;
  for (int t = 1; t <= 100; ++t) {
    ring_.Sync(table_);
    const auto& eligible = table_.PoolOf("", {1}).eligible;
    const auto pick = ring_.ChooseBounded(42, eligible, table_, {1});
    if (std::find(order.begin(), order.end(), pick.slot) == order.end()) order.push_back(pick.slot);
    ++load[pick.slot];
    ++table_.at(pick.slot)->load.in_flight;
    ASSERT_LE(load[pick.slot], std::ceil(1.25 * t / 4));
    EXPECT_EQ(pick.spilled, pick.slot != order.front());
  }
  std::vector<int> loads;
  for (const uint32_t slot : order) loads.push_back(load[slot]);
  EXPECT_EQ(loads, (std::vector<int>{32, 31, 31, 6}));
}

TEST_F(RingTest, POL_25_IneligibleOwner_KeysGoToTheNextAndComeBack) {
  for (const char* url : {"A", "B", "C"}) Add(url);
  const auto before = Owners(1000);
  Replica& b = *table_.FindByNameOrUrl("B");
  for (int i = 0; i < 3; ++i) b.health.OnProbe(false, {});
  table_.Changed();
  const auto without = Owners(1000);
  for (int k = 0; k < 1000; ++k) {
    ASSERT_NE(without[k], "B");
    if (before[k] != "B") {
      ASSERT_EQ(before[k], without[k]);
    }
  }
  for (int i = 0; i < 2; ++i) b.health.OnProbe(true, {});
  table_.Changed();
  EXPECT_EQ(Owners(1000), before);
}

}  // namespace
}  // namespace kvring::router
