#include "kernels/cuda/shim/block_runner.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "common/random.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace kvring::kernels::cuda::shim {
namespace {

namespace context = boost::context;

constexpr int kLanes = 32;
constexpr size_t kStackBytes = size_t{64} << 10;

enum class State { kReady, kAtBarrier, kInExchange, kEnded };

struct Fiber {
  context::fiber fiber;
  context::stack_context stack;
  State state = State::kReady;
  uint64_t exchanges = 0;
  uint32_t lanes = 0;  // of the exchange it waits in
};

[[noreturn]] void Fail(const char* what, int thread) {
  std::fprintf(stderr, "cuda shim: thread %d: %s\n", thread, what);
  std::abort();
}

// AddressSanitizer must know which stack it is on.
#if defined(__SANITIZE_ADDRESS__)
void StartSwitch(void** fake, const void* bottom, size_t bytes) {
  __sanitizer_start_switch_fiber(fake, bottom, bytes);
}
void FinishSwitch(void* fake, const void** bottom, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake, bottom, bytes);
}
#else
void StartSwitch(void**, const void*, size_t) {}
void FinishSwitch(void*, const void**, size_t*) {}
#endif

// The runner frees the stacks itself.
struct BorrowedStack {
  void deallocate(const context::stack_context&) noexcept {}
};

class BlockRunner {
 public:
  BlockRunner(int threads, absl::FunctionRef<void()> body) : threads_(threads), body_(body) {
    values_.resize(2 * static_cast<size_t>(threads));
    fibers_.resize(static_cast<size_t>(threads));
    for (Fiber& fiber : fibers_) Make(fiber);
  }
  ~BlockRunner() {
    stopping_ = true;
    for (Fiber& fiber : fibers_) {
      Resume(fiber);
      context::fixedsize_stack(kStackBytes).deallocate(fiber.stack);
    }
  }

  void Run(const Place& place, const std::vector<int>& order) {
    place_ = place;
    for (Fiber& fiber : fibers_) fiber.state = State::kReady;
    while (ResumeReady(order)) Release();
  }

  const Place& place() const { return place_; }

  void Wait(State state) {
    fibers_[current_].state = state;
    Yield();
  }

  float Exchange(uint32_t lanes, float value, absl::FunctionRef<int(int)> from) {
    Fiber& own = fibers_[current_];
    const size_t round = own.exchanges++ % 2;  // nobody comes twice before all have read the first
    const int lane = current_ % kLanes;
    if ((lanes >> lane & 1) == 0) Fail("exchanges without being in its own mask", current_);
    values_[round * static_cast<size_t>(threads_) + static_cast<size_t>(current_)] = value;
    own.lanes = lanes;
    Wait(State::kInExchange);
    const int other = current_ - lane + from(lane) % kLanes;
    if (other >= threads_) Fail("reads a lane beyond the block", current_);
    return values_[round * static_cast<size_t>(threads_) + static_cast<size_t>(other)];
  }

 private:
  // Runs the body once per block, until the runner ends.
  void Make(Fiber& fiber) {
    context::fixedsize_stack stacks(kStackBytes);
    fiber.stack = stacks.allocate();
    fiber.fiber = context::fiber(std::allocator_arg,
                                 context::preallocated(fiber.stack.sp, fiber.stack.size, fiber.stack),
                                 BorrowedStack(), [this, &fiber](context::fiber&& main) {
                                   main_ = std::move(main);
                                   Arrived(nullptr);
                                   while (!stopping_) {
                                     body_();
                                     fiber.state = State::kEnded;
                                     Yield();
                                   }
                                   Leave(nullptr);
                                   return std::move(main_);
                                 });
  }

  // One turn of each that can run; false when all have ended.
  bool ResumeReady(const std::vector<int>& order) {
    bool any = false;
    for (const int thread : order) {
      Fiber& fiber = fibers_[static_cast<size_t>(thread)];
      if (fiber.state != State::kReady) continue;
      any = true;
      current_ = thread;
      place_.thread.x = static_cast<unsigned>(thread);
      Resume(fiber);
    }
    return any || std::ranges::any_of(fibers_, [](const Fiber& f) { return f.state != State::kEnded; });
  }

  // Whoever waits for those who have all come goes on.
  void Release() {
    bool released = false;
    for (int warp = 0; warp < threads_; warp += kLanes) released |= ReleaseWarp(warp);
    if (released) return;
    const auto waits = [](const Fiber& f) { return f.state == State::kAtBarrier; };
    if (std::ranges::all_of(fibers_, waits)) {
      for (Fiber& fiber : fibers_) fiber.state = State::kReady;
      return;
    }
    for (int t = 0; t < threads_; ++t) {
      const State state = fibers_[static_cast<size_t>(t)].state;
      if (state == State::kAtBarrier) Fail("waits at a barrier that others have passed by", t);
      if (state == State::kInExchange) Fail("waits in an exchange for lanes that do not come", t);
    }
  }

  bool ReleaseWarp(int first) {
    const int end = std::min(first + kLanes, threads_);
    for (int t = first; t < end; ++t) {
      const Fiber& fiber = fibers_[static_cast<size_t>(t)];
      if (fiber.state != State::kInExchange) continue;
      bool all = true;
      for (int other = first; other < end; ++other) {
        if ((fiber.lanes >> (other - first) & 1) == 0) continue;
        all &= fibers_[static_cast<size_t>(other)].state == State::kInExchange;
      }
      if (!all) return false;
      const uint32_t lanes = fiber.lanes;
      for (int other = first; other < end; ++other) {
        if (lanes >> (other - first) & 1) fibers_[static_cast<size_t>(other)].state = State::kReady;
      }
      return true;
    }
    return false;
  }

  void Resume(Fiber& fiber) {
    void* fake = nullptr;
    StartSwitch(&fake, static_cast<std::byte*>(fiber.stack.sp) - fiber.stack.size, fiber.stack.size);
    fiber.fiber = std::move(fiber.fiber).resume();
    FinishSwitch(fake, nullptr, nullptr);
  }
  void Yield() {
    void* fake = nullptr;
    Leave(&fake);
    main_ = std::move(main_).resume();
    Arrived(fake);
  }
  // On a fiber: from and back to the runner's own stack.
  void Leave(void** fake) { StartSwitch(fake, main_stack_, main_stack_bytes_); }
  void Arrived(void* fake) { FinishSwitch(fake, &main_stack_, &main_stack_bytes_); }

  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
  bool stopping_ = false;
  const int threads_;
  absl::FunctionRef<void()> body_;
  std::vector<Fiber> fibers_;
  std::vector<float> values_;
  context::fiber main_;
  Place place_;
  int current_ = 0;
};

BlockRunner* running = nullptr;
Order order = Order::kAscending;
uint64_t order_seed = 0;

std::vector<int> OrderOf(int threads) {
  std::vector<int> result(static_cast<size_t>(threads));
  std::iota(result.begin(), result.end(), 0);
  if (order == Order::kDescending) std::ranges::reverse(result);
  Random random(order_seed);
  for (size_t i = result.size(); order == Order::kShuffled && i > 1; --i)
    std::swap(result[i - 1], result[random.Below(i)]);
  return result;
}

}  // namespace

const Place& Here() { return running->place(); }
void Barrier() { running->Wait(State::kAtBarrier); }
float Exchange(uint32_t lanes, float value, absl::FunctionRef<int(int)> from) {
  return running->Exchange(lanes, value, from);
}

void SetOrder(Order new_order, uint64_t seed) {
  order = new_order;
  order_seed = seed;
}

void RunGrid(Dim3 grid, int threads, absl::FunctionRef<void()> body) {
  BlockRunner runner(threads, body);
  running = &runner;
  const std::vector<int> threads_in_order = OrderOf(threads);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        runner.Run({{}, {x, y, z}, {static_cast<unsigned>(threads), 1, 1}, grid}, threads_in_order);
      }
    }
  }
  running = nullptr;
}

}  // namespace kvring::kernels::cuda::shim
