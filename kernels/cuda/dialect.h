// The words that CUDA kernels are written in: CUDA C++ under nvcc; elsewhere the same words from
// shim/words.h, which run a kernel's own source on the host, thread by thread. A kernel file includes this,
// its own header and launch.h, nothing of the toolkit.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#else
#include "kernels/cuda/shim/words.h"
#endif

namespace kvring::kernels::cuda {

constexpr int kWarp = 32;

/// The sum over the warp, in every lane.
__device__ inline float WarpSum(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffU, value, lanes);
  return value;
}
__device__ inline float WarpMax(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, lanes));
  return value;
}

/// The sum over a block of whole warps, in every thread. `scratch`: shared, one float per warp; free again at
/// the block's next barrier.
__device__ inline float BlockSum(float value, float* scratch) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < warps; ++warp) sum += scratch[warp];
  return sum;
}

}  // namespace kvring::kernels::cuda
