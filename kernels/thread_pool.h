// ThreadPool: runs the tasks of one parallel region at a time on the caller and size() - 1 workers. A region
// costs well under a microsecond while the workers are awake; they spin for about 50 µs after a region, then
// sleep. Tasks are taken in order from one counter; a worker that comes late (its core is busy elsewhere)
// finds nothing and holds up nobody: the region ends when its tasks have ended. Which thread runs a task is
// left open, so a task's result must not depend on it. Run is called from one thread at a time and does not
// nest.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace kvring::kernels {

class ThreadPool {
 public:
  /// threads >= 1, the caller's included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  /// body(0 … tasks - 1), each once; returns when all have returned. tasks < 2^32.
  void Run(int64_t tasks, absl::FunctionRef<void(int64_t)> body);

 private:
  using Body = absl::FunctionRef<void(int64_t)>;

  void Work();
  void TakeTasks(uint32_t region);
  bool WaitForRegion(uint32_t& seen);

  // The region's number in the high half, the tasks nobody has taken yet in the low one: whether a claim is
  // good is decided by this word alone, so that a worker that comes late can neither miscount nor run a task
  // of another region.
  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<int64_t> finished_{0};
  alignas(64) std::atomic<uint32_t> region_{0};
  std::atomic<const Body*> body_{nullptr};
  std::atomic<int64_t> tasks_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace kvring::kernels
