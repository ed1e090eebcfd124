// The host shim: runs a kernel's own source on the CPU. Blocks go one after another; the threads of a block
// are fibers that yield where CUDA would wait: at __syncthreads and in warp exchanges. What it finds out:
//   races            a launch is run under an order of the threads that tests choose (ascending, descending,
//                    shuffled by a seed): a result that changes with it read what no barrier had settled
//   broken barriers  a block of which some threads end or exchange while others wait ends the process with a
//                    message that names the thread
//   bounds           device memory ends at a page that nobody may touch (memory.h), and AddressSanitizer sees
//                    all of it as host memory
// Single-threaded: one launch at a time.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace kvring::kernels::cuda::shim {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

struct Place {
  Dim3 thread;
  Dim3 block;
  Dim3 block_dim;
  Dim3 grid_dim;
};

/// Of the thread that runs.
const Place& Here();

enum class Order { kAscending, kDescending, kShuffled };
/// For the launches from now on. The seed is kShuffled's.
void SetOrder(Order order, uint64_t seed = 0);

/// body() once per thread of the grid. threads: of a block (x only).
void RunGrid(Dim3 grid, int threads, absl::FunctionRef<void()> body);

void Barrier();
/// Gives `value` to the warp and takes that of lane `from(own lane)`. All lanes of `lanes` take part.
float Exchange(uint32_t lanes, float value, absl::FunctionRef<int(int)> from);

}  // namespace kvring::kernels::cuda::shim
