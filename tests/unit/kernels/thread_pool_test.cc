#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace kvring::kernels {
namespace {

TEST(ThreadPoolTest, Run_EveryTaskOnce_OverManyRegionsAndSizes) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t region = 0; region < 3000; ++region) {
      const int64_t tasks = region % 37;
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.Run(tasks, [&](int64_t task) { runs[static_cast<size_t>(task)].fetch_add(1); });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

// Stress of what once went wrong: a worker preempted between reading the claim and the task count took the
// next region's count for its own and ran a task twice. Short regions of changing size, more threads than
// cores; it makes the interleaving likely, not certain.
TEST(ThreadPoolTest, Run_LateWorkers_NeverRepeatOrLoseATask) {
  ThreadPool pool(4);
  std::atomic<int64_t> runs{0};
  int64_t expected = 0;
  for (int64_t region = 0; region < 60000; ++region) {
    const int64_t tasks = 2 + region * 7 % 11;
    expected += tasks;
    pool.Run(tasks, [&](int64_t) { runs.fetch_add(1, std::memory_order_relaxed); });
    ASSERT_EQ(runs.load(), expected) << region;
  }
}

// What tasks wrote is seen by the caller without any synchronisation of its own (the thread sanitizer checks
// that).
TEST(ThreadPoolTest, Run_Writes_AreVisibleAfterwards) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000);
  for (int64_t round = 1; round < 200; ++round) {
    pool.Run(1000, [&](int64_t task) { values[static_cast<size_t>(task)] += task * round; });
  }
  for (int64_t task = 0; task < 1000; ++task)
    EXPECT_EQ(values[static_cast<size_t>(task)], task * 199 * 200 / 2);
}

TEST(ThreadPoolTest, Destroy_UnusedOrIdle_Ends) {
  { ThreadPool unused(4); }
  ThreadPool idle(4);
  idle.Run(4, [](int64_t) {});
}

}  // namespace
}  // namespace kvring::kernels
