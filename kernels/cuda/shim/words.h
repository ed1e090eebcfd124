// The host shim's side of dialect.h: CUDA's words for one thread of one block at a time (block_runner.h).
// `__shared__` is one static variable, since blocks run one after another; its contents survive a block, as
// they may on a device. bf16 rounds to nearest even, as the device does. Fused multiply-adds are left to the
// compiler, so results are compared with a tolerance, never bit by bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/shim/block_runner.h"
#include "kernels/half.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)

#define threadIdx (::kvring::kernels::cuda::shim::Here().thread)
#define blockIdx (::kvring::kernels::cuda::shim::Here().block)
#define blockDim (::kvring::kernels::cuda::shim::Here().block_dim)
#define gridDim (::kvring::kernels::cuda::shim::Here().grid_dim)

inline void __syncthreads() { ::kvring::kernels::cuda::shim::Barrier(); }
inline float __shfl_xor_sync(uint32_t lanes, float value, int mask) {
  return ::kvring::kernels::cuda::shim::Exchange(lanes, value, [mask](int lane) { return lane ^ mask; });
}
inline float __shfl_sync(uint32_t lanes, float value, int from) {
  return ::kvring::kernels::cuda::shim::Exchange(lanes, value, [from](int) { return from; });
}

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 value) { return kvring::kernels::Bf16ToFloat(value.bits); }
inline __nv_bfloat16 __float2bfloat16(float value) { return {kvring::kernels::FloatToBf16(value)}; }

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
using std::max;
using std::min;
