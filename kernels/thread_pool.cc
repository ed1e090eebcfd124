#include "kernels/thread_pool.h"

#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

constexpr int kSpinsBeforeSleep = 2000;  // about 50 µs of pauses
constexpr uint64_t kLeftMask = 0xffffffff;
constexpr int kSpinsBeforeYield = 4000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  KVRING_CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads) - 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  region_.fetch_add(1);
  region_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t tasks, absl::FunctionRef<void(int64_t)> body) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  body_.store(&body, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
  const uint32_t region = region_.load(std::memory_order_relaxed) + 1;
  claim_.store(static_cast<uint64_t>(region) << 32 | static_cast<uint64_t>(tasks), std::memory_order_release);
  region_.store(region, std::memory_order_release);
  region_.notify_all();
  TakeTasks(region);
  for (int spins = 0; finished_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins < kSpinsBeforeYield) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::TakeTasks(uint32_t region) {
  uint64_t claim = claim_.load(std::memory_order_acquire);
  while (claim >> 32 == region && (claim & kLeftMask) != 0) {
    if (!claim_.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    // Read after the claim, never before: the region stays open until this task has ended, so these are its
    // own.
    const Body* body = body_.load(std::memory_order_relaxed);
    const int64_t tasks = tasks_.load(std::memory_order_relaxed);
    (*body)(tasks - static_cast<int64_t>(claim & kLeftMask));
    finished_.fetch_add(1, std::memory_order_release);
    claim = claim_.load(std::memory_order_acquire);
  }
}

bool ThreadPool::WaitForRegion(uint32_t& seen) {
  for (int spins = 0; spins < kSpinsBeforeSleep; ++spins) {
    if (region_.load(std::memory_order_acquire) != seen) break;
    Pause();
  }
  region_.wait(seen, std::memory_order_acquire);
  seen = region_.load(std::memory_order_acquire);
  return !stop_.load();
}

void ThreadPool::Work() {
  uint32_t seen = 0;
  while (WaitForRegion(seen)) TakeTasks(seen);
}

}  // namespace kvring::kernels
