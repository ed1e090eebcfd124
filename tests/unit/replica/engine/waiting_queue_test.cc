#include "replica/engine/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "common/random.h"

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

// Random comings and goings against the order by definition: again and again the best of all that are left.
TEST_F(WaitingQueueTest, RandomOperations_OrderEqualsTheDefinition) {
  Random random(5);
  std::vector<Sequence*> waiting;
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t what = random.Below(10);
    if (what < 4 && waiting.size() < 40) {
      waiting.push_back(&Add(i, random.Below(8), 1 + static_cast<int32_t>(random.Below(30)),
                             static_cast<int32_t>(random.Below(2))));
    } else if (what < 7 && !waiting.empty()) {
      Serve(*waiting[random.Below(waiting.size())], static_cast<int32_t>(random.Below(50)));
    } else if (!waiting.empty()) {
      const size_t at = random.Below(waiting.size());
      Drop(*waiting[at]);
      waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(at));
    }
    std::vector<Sequence*> left = waiting;
    std::map<TenantId, int64_t> served;
    for (const Sequence* s : left) served[s->tenant] = queue_.served(s->tenant);
    std::vector<uint64_t> expected;
    int32_t priority = 2;
    while (!left.empty()) {
      const auto best = std::ranges::min_element(left, {}, [&](const Sequence* s) {
        return std::tuple(-s->rank.priority, served[s->tenant], s->rank.arrival);
      });
      if ((*best)->rank.priority < priority) {  // each level begins with what has really been served
        priority = (*best)->rank.priority;
        for (auto& [tenant, tokens] : served) tokens = queue_.served(tenant);
        continue;
      }
      expected.push_back((*best)->rank.arrival);
      served[(*best)->tenant] += (*best)->length();
      left.erase(best);
    }
    ASSERT_EQ(Order(), expected) << i;
    const size_t limit = random.Below(10);
    expected.resize(std::min(expected.size(), limit));
    ASSERT_EQ(Order(limit), expected) << i;
  }
}

}  // namespace
}  // namespace kvring::replica
