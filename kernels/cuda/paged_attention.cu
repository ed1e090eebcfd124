#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxHeadDim = 256;
constexpr int kLaneDims = kMaxHeadDim / kWarp;

/// A softmax so far: largest score, sum of weights, weighted values of this lane's dimensions lane + 32 i.
/// Loops over these have a constant bound, so that they stay in registers.
struct Softmax {
  float peak;
  float sum;
  float values[kLaneDims];
};

__device__ inline void Take(float score, const __nv_bfloat16* value, int head_dim, Softmax& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float peak = fmaxf(s.peak, score);
  const float keep = __expf(s.peak - peak);
  const float weight = __expf(score - peak);
  s.peak = peak;
  s.sum = s.sum * keep + weight;
  for (int i = 0; i < kLaneDims; ++i) {
    const int d = lane + i * kWarp;
    if (d < head_dim) s.values[i] = s.values[i] * keep + weight * __bfloat162float(value[d]);
  }
}

// One block per row and query head.
__global__ void __launch_bounds__(kThreads)
    PagedAttentionKernel(PagedKv kv, int64_t layer_at, StepRows rows, AttentionArguments a) {
  __shared__ float peaks[kWarps];
  __shared__ float sums[kWarps];
  __shared__ float values[kWarps][kMaxHeadDim];
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int dim = kv.head_dim;
  const int64_t at = (static_cast<int64_t>(row) * a.heads + head) * dim;
  const int64_t half_block = static_cast<int64_t>(kv.kv_heads) * kv.block_size * dim;
  const int64_t head_at = static_cast<int64_t>(head / (a.heads / kv.kv_heads)) * kv.block_size * dim;
  const auto* pool = reinterpret_cast<const __nv_bfloat16*>(kv.data) + layer_at + head_at;
  const int32_t* table = rows.tables + rows.table[row];
  const int last = rows.position[row];
  const int first = a.window > 0 && last >= a.window ? last - a.window + 1 : 0;

  float q[kLaneDims] = {};
  for (int i = 0; i < kLaneDims; ++i)
    if (const int d = lane + i * kWarp; d < dim) q[i] = a.q[at + d] * a.scale;
  Softmax own{-INFINITY, 0, {}};
  for (int p = first + warp; p <= last; p += kWarps) {
    const int64_t block = static_cast<int64_t>(table[p / kv.block_size]) * 2 * half_block;
    const __nv_bfloat16* key = pool + block + static_cast<int64_t>(p % kv.block_size) * dim;
    float dot = 0;
    for (int i = 0; i < kLaneDims; ++i)
      if (const int d = lane + i * kWarp; d < dim) dot += q[i] * __bfloat162float(key[d]);
    Take(WarpSum(dot), key + half_block, dim, own);
  }

  if (lane == 0) {
    peaks[warp] = own.peak;
    sums[warp] = own.sum;
  }
  for (int i = 0; i < kLaneDims; ++i)
    if (const int d = lane + i * kWarp; d < dim) values[warp][d] = own.values[i];
  __syncthreads();
  float peak = peaks[0];
  for (int w = 1; w < kWarps; ++w) peak = fmaxf(peak, peaks[w]);
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += sums[w] * __expf(peaks[w] - peak);
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += values[w][d] * __expf(peaks[w] - peak);
    reinterpret_cast<__nv_bfloat16*>(a.out)[at + d] = __float2bfloat16(value / sum);
  }
}

}  // namespace

void PagedAttention(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                    const AttentionArguments& arguments) {
  Launch(stream, PagedAttentionKernel,
         {.blocks_x = rows.rows, .blocks_y = arguments.heads, .threads = kThreads}, kv,
         layer * kv.layer_elements(), rows, arguments);
}

}  // namespace kvring::kernels::cuda
