// The host shim finds what it is for: planted races, reads beyond the end, barriers that not all reach.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/launch.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kThreads = 64;

// Each thread leaves its number to a thread of the other warp; without the barrier it may come too late.
__global__ void TradeKernel(bool barrier, int32_t* out) {
  __shared__ int32_t box[kThreads];
  const int own = static_cast<int>(threadIdx.x);
  box[own] = -1;
  __syncthreads();
  box[own] = own;
  if (barrier) __syncthreads();
  out[own] = box[(own + kThreads / 2) % kThreads];
}

std::vector<int32_t> Trade(shim::Order order, bool barrier) {
  const auto stream = *Stream::Open(0);
  shim::SetOrder(order, 3);
  auto out = *DeviceArray<int32_t>::Make(*stream, kThreads);
  Launch(*stream, TradeKernel, {.threads = kThreads}, barrier, out.data());
  std::vector<int32_t> result(kThreads);
  EXPECT_TRUE(stream->Download(result.data(), out.data(), kThreads * sizeof(int32_t)).ok());
  shim::SetOrder(shim::Order::kAscending);
  return result;
}

TEST(CudaShimTest, PlantedRace_ChangesWithTheOrder_AndTheBarrierMendsIt) {
  const auto ascending = Trade(shim::Order::kAscending, false);
  EXPECT_NE(ascending, Trade(shim::Order::kDescending, false));
  EXPECT_NE(ascending, Trade(shim::Order::kShuffled, false));
  std::vector<int32_t> expected(kThreads);
  for (int i = 0; i < kThreads; ++i) expected[static_cast<size_t>(i)] = (i + kThreads / 2) % kThreads;
  for (const auto order : {shim::Order::kAscending, shim::Order::kDescending, shim::Order::kShuffled})
    EXPECT_EQ(Trade(order, true), expected);
}

__global__ void ReadKernel(const float* x, int at, float* out) { out[threadIdx.x] = x[at]; }

TEST(CudaShimDeathTest, ReadBeyondTheEnd_EndsTheProcess) {
  const auto stream = *Stream::Open(0);
  const std::vector<float> values(64, 2.0F);
  const auto x = *DeviceArray<float>::Of(*stream, values);
  const auto out = *DeviceArray<float>::Make(*stream, 32);
  Launch(*stream, ReadKernel, {}, static_cast<const float*>(x.data()), 63, out.data());
  EXPECT_EQ(out.data()[31], 2.0F);
  EXPECT_DEATH(Launch(*stream, ReadKernel, {}, static_cast<const float*>(x.data()), 64, out.data()), "");
}

__global__ void HalfAtTheBarrierKernel() {
  if (threadIdx.x < 16) __syncthreads();
}
__global__ void HalfInTheExchangeKernel(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = WarpSum(1.0F);
}

TEST(CudaShimDeathTest, BarrierThatNotAllReach_NamesTheThread) {
  const auto stream = *Stream::Open(0);
  const auto out = *DeviceArray<float>::Make(*stream, 32);
  EXPECT_DEATH(Launch(*stream, HalfAtTheBarrierKernel, {}), "thread 0: waits at a barrier");
  EXPECT_DEATH(Launch(*stream, HalfInTheExchangeKernel, {}, out.data()), "thread 0: waits in an exchange");
}

__global__ void SumKernel(const float* x, float* warp_sums, float* block_sums, float* peaks) {
  __shared__ float scratch[8];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  warp_sums[i] = WarpSum(x[i]);
  peaks[i] = WarpMax(x[i]);
  block_sums[i] = BlockSum(x[i], scratch);
}

TEST(CudaShimTest, Reductions_GiveEveryThreadTheSum) {
  const auto stream = *Stream::Open(0);
  std::vector<float> values(2 * kThreads);
  std::iota(values.begin(), values.end(), 1.0F);
  const auto x = *DeviceArray<float>::Of(*stream, values);
  const auto warps = *DeviceArray<float>::Make(*stream, values.size());
  const auto blocks = *DeviceArray<float>::Make(*stream, values.size());
  const auto peaks = *DeviceArray<float>::Make(*stream, values.size());
  Launch(*stream, SumKernel, {.blocks_x = 2, .threads = kThreads}, static_cast<const float*>(x.data()),
         warps.data(), blocks.data(), peaks.data());
  for (int i = 0; i < 2 * kThreads; ++i) {
    const int warp = i / kWarp * kWarp;
    const int block = i / kThreads * kThreads;
    EXPECT_EQ(warps.data()[i], std::accumulate(values.begin() + warp, values.begin() + warp + kWarp, 0.0F));
    EXPECT_EQ(blocks.data()[i],
              std::accumulate(values.begin() + block, values.begin() + block + kThreads, 0.0F));
    EXPECT_EQ(peaks.data()[i], values[static_cast<size_t>(warp + kWarp - 1)]);
  }
}

}  // namespace
}  // namespace kvring::kernels::cuda
