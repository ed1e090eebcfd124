#include "replica/engine/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvring::replica {
namespace {

using testing::ElementsAre;

class WaitingQueueTest : public testing::Test {
 protected:
  /// A sequence of so many prompt tokens that has come into the engine and waits.
  Sequence& Add(uint64_t arrival, uint64_t tenant, int32_t prompt = 10, int32_t priority = 0) {
    Sequence& s = *sequences_.emplace_back(std::make_unique<Sequence>());
    s.rank = {.priority = priority, .arrival = arrival};
    s.tenant = {tenant};
    s.tokens.resize(prompt);
    s.prompt_tokens = prompt;
    queue_.Enter(s);
    queue_.Insert(s);
    return s;
  }
  void Serve(Sequence& s, int32_t tokens) { queue_.Charge(s, tokens); }
  void Drop(Sequence& s) {
    queue_.Erase(s);
    queue_.Leave(s);
  }
  /// Arrivals, in the order in which they would be tried.
  std::vector<uint64_t> Order(size_t limit = 100) {
    std::vector<Sequence*> out;
    queue_.Order(limit, out);
    std::vector<uint64_t> arrivals;
    for (const Sequence* s : out) arrivals.push_back(s->rank.arrival);
    return arrivals;
  }

  WaitingQueue queue_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST_F(WaitingQueueTest, OneTenant_FirstComeFirstServed) {
  for (const uint64_t arrival : {3, 1, 2}) Add(arrival, 0);
  EXPECT_THAT(Order(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Order(2), ElementsAre(1, 2));
  EXPECT_EQ(queue_.size(), 3u);
}

TEST_F(WaitingQueueTest, PriorityThenPreemptedThenTenants) {
  Add(1, 1);
  Sequence& preempted = Add(5, 2);
  Add(6, 2);
  Add(9, 1, 10, /*priority=*/1);
  queue_.Erase(preempted);
  preempted.admitted_once = true;
  queue_.Insert(preempted);
  Serve(preempted, 1000);
  EXPECT_THAT(Order(), ElementsAre(9, 5, 1, 6));
  queue_.Erase(preempted);
  EXPECT_THAT(Order(), ElementsAre(9, 1, 6));
}

// Within one call too: each is taken as if it had been computed when the next is chosen.
TEST_F(WaitingQueueTest, TenantsTakeTurnsByTokens) {
  for (const uint64_t arrival : {1, 2, 3, 4}) Add(arrival, 1, 10);
  for (const uint64_t arrival : {5, 6}) Add(arrival, 2, 25);
  EXPECT_THAT(Order(), ElementsAre(1, 5, 2, 3, 6, 4));
  EXPECT_THAT(Order(3), ElementsAre(1, 5, 2));
}

TEST_F(WaitingQueueTest, LeastServedGoesFirst_OutputCountsTwice) {
  Sequence& a = Add(1, 1);
  Sequence& b = Add(2, 2);
  Serve(a, 5);
  EXPECT_THAT(Order(), ElementsAre(2, 1));
  b.computed = b.prompt_tokens;
  Serve(b, 3);
  EXPECT_EQ(queue_.served({2}), 6);
  EXPECT_THAT(Order(), ElementsAre(1, 2));
}

TEST_F(WaitingQueueTest, Newcomer_StartsAtTheLeastServed) {
  Sequence& a = Add(1, 1);
  Sequence& b = Add(2, 2);
  Serve(a, 500);
  Serve(b, 300);
  Add(3, 3);
  EXPECT_EQ(queue_.served({3}), 300);
}

TEST_F(WaitingQueueTest, LeavingAndComingBack_WashesNothingOff) {
  Sequence& a = Add(1, 1);
  Sequence& b = Add(2, 2);
  Serve(a, 500);
  Serve(b, 100);
  Drop(a);
  Add(3, 1);
  EXPECT_EQ(queue_.served({1}), 500);
}

TEST_F(WaitingQueueTest, EmptyEngine_NewcomerStartsWhereTheLastOneLeft) {
  Sequence& a = Add(1, 1);
  Serve(a, 500);
  Drop(a);
  Add(2, 2);
  EXPECT_EQ(queue_.served({2}), 500);
}

}  // namespace
}  // namespace kvring::replica
