#include "router/discovery/lease_table.h"

#include <gtest/gtest.h>

namespace kvring::router {
namespace {

using Change = LeaseTable::Change;
constexpr Epoch kFirst{11};
constexpr Epoch kSecond{22};

Instant At(double seconds) { return Instant{} + FromSeconds(seconds); }
bool Failing(const std::string&) { return true; }
bool Healthy(const std::string&) { return false; }

TEST(LeaseTable, Register_TellsWhatChanged) {
  LeaseTable table;
  EXPECT_EQ(table.Register("a:1", kFirst, At(0)), Change::kAdded);
  EXPECT_EQ(table.Register("a:1", kFirst, At(1)), Change::kRenewed);
  EXPECT_EQ(table.Register("a:1", kSecond, At(2)), Change::kNewEpoch);
  EXPECT_EQ(table.Register("a:1", kFirst, At(2)), Change::kStale);
  EXPECT_EQ(table.Register("a:1", kSecond, At(2)), Change::kRenewed);
  EXPECT_EQ(table.size(), 1u);
}

TEST(LeaseTable, Expiry_NeedsBothEndedLeaseAndFailingProbes) {
  LeaseTable table(std::chrono::seconds(3));
  table.Register("a:1", kFirst, At(0));
  EXPECT_TRUE(table.TakeExpired(At(2.9), Failing).empty());
  EXPECT_TRUE(table.TakeExpired(At(100), Healthy).empty());
  EXPECT_EQ(table.TakeExpired(At(3), Failing), std::vector<std::string>{"a:1"});
  EXPECT_FALSE(table.contains("a:1"));
  EXPECT_EQ(table.Register("a:1", kFirst, At(4)), Change::kAdded);
}

TEST(LeaseTable, Renewal_ExtendsFromItsOwnTime) {
  LeaseTable table(std::chrono::seconds(3));
  table.Register("a:1", kFirst, At(0));
  table.Register("b:1", kFirst, At(0));
  table.Register("a:1", kFirst, At(2));
  EXPECT_EQ(table.TakeExpired(At(4), Failing), std::vector<std::string>{"b:1"});
  EXPECT_EQ(table.TakeExpired(At(5), Failing), std::vector<std::string>{"a:1"});
}

TEST(LeaseTable, StaleRegistration_DoesNotRenew) {
  LeaseTable table(std::chrono::seconds(3));
  table.Register("a:1", kFirst, At(0));
  table.Register("a:1", kSecond, At(1));
  table.Register("a:1", kFirst, At(3.9));
  EXPECT_EQ(table.TakeExpired(At(4), Failing).size(), 1u);
}

TEST(LeaseTable, Deregister_OnlyByTheRegisteredLife) {
  LeaseTable table;
  table.Register("a:1", kSecond, At(0));
  EXPECT_FALSE(table.Deregister("a:1", kFirst));
  EXPECT_FALSE(table.Deregister("b:1", kSecond));
  EXPECT_TRUE(table.Deregister("a:1", kSecond));
  EXPECT_FALSE(table.Deregister("a:1", kSecond));
}

}  // namespace
}  // namespace kvring::router
