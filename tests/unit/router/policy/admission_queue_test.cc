#include "router/policy/admission_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/random.h"

namespace kvring::router {
namespace {

using Offered = AdmissionQueue::Offered;

QueueTicket Ticket(uint64_t id, int64_t priority = 0, const char* pool = "m", int64_t until = 1'000) {
  return {.pool = pool, .rank = {-priority, id}, .id = {id}, .until = {until}};
}

std::vector<uint64_t> TakeAll(AdmissionQueue& queue) {
  std::vector<uint64_t> order;
  queue.Offer([&](RequestId id) {
    order.push_back(id.value);
    return Offered::kTaken;
  });
  return order;
}

TEST(AdmissionQueue, Offer_PriorityThenArrival_OverAllPools) {
  AdmissionQueue queue;
  for (const QueueTicket& t : {Ticket(1), Ticket(2, 5, "b"), Ticket(3, -1), Ticket(4, 5), Ticket(5, 0, "b")})
    EXPECT_FALSE(queue.Add(t, 8));
  EXPECT_EQ(TakeAll(queue), (std::vector<uint64_t>{2, 4, 1, 5, 3}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(AdmissionQueue, Offer_OneWhomNobodySuits_BlocksNoOther_AFullPoolBlocksItselfAlone) {
  AdmissionQueue queue;
  for (const QueueTicket& t : {Ticket(1), Ticket(2), Ticket(3, 0, "b"), Ticket(4, 0, "b"), Ticket(5)})
    queue.Add(t, 8);
  std::vector<uint64_t> asked;
  queue.Offer([&](RequestId id) {
    asked.push_back(id.value);
    if (id.value == 1) return Offered::kNotByThis;
    return id.value == 3 ? Offered::kNotByAnyOfPool : Offered::kTaken;
  });
  EXPECT_EQ(asked, (std::vector<uint64_t>{1, 2, 3, 5}));
  EXPECT_EQ(TakeAll(queue), (std::vector<uint64_t>{1, 3, 4}));
}

TEST(AdmissionQueue, Add_Full_ShedsTheLastInLine) {
  AdmissionQueue queue;
  EXPECT_FALSE(queue.Add(Ticket(1), 2));
  EXPECT_FALSE(queue.Add(Ticket(2), 2));
  EXPECT_EQ(queue.Add(Ticket(3), 2), RequestId{3});
  EXPECT_EQ(queue.Add(Ticket(4, 1), 2), RequestId{2});
  EXPECT_FALSE(queue.Add(Ticket(5, 0, "other"), 2));
  EXPECT_EQ(queue.Add(Ticket(6), 0), RequestId{6});
  EXPECT_EQ(TakeAll(queue), (std::vector<uint64_t>{4, 1, 5}));
}

TEST(AdmissionQueue, TakeExpired_AtItsInstantAndNotBefore) {
  AdmissionQueue queue;
  queue.Add(Ticket(1, 0, "m", 200), 8);
  queue.Add(Ticket(2, 0, "m", 100), 8);
  EXPECT_FALSE(queue.TakeExpired({99}));
  EXPECT_EQ(queue.TakeExpired({100}), RequestId{2});
  EXPECT_FALSE(queue.TakeExpired({100}));
  EXPECT_EQ(TakeAll(queue), (std::vector<uint64_t>{1}));
  EXPECT_FALSE(queue.TakeExpired({500}));
}

// Against a plain sorted list.
TEST(AdmissionQueue, RandomOperations_AgreeWithAList) {
  Random random(5);
  AdmissionQueue queue;
  std::vector<QueueTicket> list;
  const auto by_rank = [](const QueueTicket& a, const QueueTicket& b) { return a.rank < b.rank; };
  for (uint64_t step = 1; step <= 20'000; ++step) {
    const uint64_t what = random.Below(10);
    if (what < 5) {
      const QueueTicket t =
          Ticket(step, static_cast<int64_t>(random.Below(3)), random.Below(2) == 0 ? "a" : "b",
                 static_cast<int64_t>(step + random.Below(80)));
      const auto same = [&](const QueueTicket& x) { return x.pool == t.pool; };
      list.insert(std::upper_bound(list.begin(), list.end(), t, by_rank), t);
      std::optional<RequestId> shed;
      if (std::count_if(list.begin(), list.end(), same) > 6) {
        const auto last = std::find_if(list.rbegin(), list.rend(), same);
        shed = last->id;
        list.erase(std::next(last).base());
      }
      ASSERT_EQ(queue.Add(t, 6), shed);
    } else if (what < 7 && !list.empty()) {
      const size_t i = random.Below(list.size());
      queue.Remove(list[i]);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (what < 8) {
      while (const auto id = queue.TakeExpired({static_cast<int64_t>(step)})) {
        const auto found = std::find_if(list.begin(), list.end(), [&](const auto& t) { return t.id == *id; });
        ASSERT_NE(found, list.end());
        ASSERT_LE(found->until.ns, static_cast<int64_t>(step));
        list.erase(found);
      }
      for (const QueueTicket& t : list) ASSERT_GT(t.until.ns, static_cast<int64_t>(step));
    } else {
      const size_t room = std::min(random.Below(3), static_cast<uint64_t>(list.size()));
      size_t taken = 0, asked = 0;
      queue.Offer([&](RequestId id) {
        EXPECT_EQ(id, list[asked++].id);
        if (taken == room) return Offered::kNotByThis;
        ++taken;
        return Offered::kTaken;
      });
      ASSERT_EQ(asked, list.size());
      list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(taken));
    }
    ASSERT_EQ(queue.size(), list.size());
  }
}

}  // namespace
}  // namespace kvring::router
