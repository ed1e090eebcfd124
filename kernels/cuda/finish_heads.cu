#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kMaxHeadDim = 256;

/// One head in shared memory, by one warp: plus bias, its RMS norm, rotated.
__device__ inline void LoadHead(const float* x, const float* bias, const float* norm, float epsilon,
                                int head_dim, float* head) {
  const int lane = static_cast<int>(threadIdx.x);
  float squares = 0;
  for (int d = lane; d < head_dim; d += kWarp) {
    const float value = bias == nullptr ? x[d] : x[d] + bias[d];
    head[d] = value;
    squares += value * value;
  }
  if (norm != nullptr) {
    const float scale = rsqrtf(WarpSum(squares) / static_cast<float>(head_dim) + epsilon);
    for (int d = lane; d < head_dim; d += kWarp) head[d] *= scale * norm[d];
  }
  __syncthreads();
}

/// Pair i are dimensions (2i, 2i + 1) or (i, i + head_dim / 2).
__device__ inline void Rotate(const float* rope, bool adjacent, int head_dim, float* head) {
  const int half = head_dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kWarp) {
    const int a = adjacent ? 2 * i : i;
    const int b = adjacent ? 2 * i + 1 : i + half;
    const float x = head[a];
    const float y = head[b];
    head[a] = x * rope[i] - y * rope[half + i];
    head[b] = x * rope[half + i] + y * rope[i];
  }
  __syncthreads();
}

// blockIdx.y: the query heads, then the key heads, then the value heads. One warp.
__global__ void __launch_bounds__(kWarp)
    FinishHeadsKernel(PagedKv kv, int64_t layer_at, StepRows rows, HeadsArguments a) {
  __shared__ float head[kMaxHeadDim];
  const int row = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  const int h = static_cast<int>(blockIdx.y);
  const int dim = kv.head_dim;
  const bool query = h < a.heads;
  const bool key = !query && h < a.heads + kv.kv_heads;
  const int own = query ? h : key ? h - a.heads : h - a.heads - kv.kv_heads;
  const int width = query ? a.heads * dim : kv.kv_heads * dim;
  const int64_t at = static_cast<int64_t>(row) * width + own * dim;
  const float* x = query ? a.q : key ? a.k : a.v;
  const float* bias = query ? a.q_bias : key ? a.k_bias : a.v_bias;
  const float* norm = query ? a.q_norm : key ? a.k_norm : nullptr;
  LoadHead(x + at, bias == nullptr ? nullptr : bias + own * dim, norm, a.epsilon, dim, head);
  if (a.rope != nullptr && (query || key))
    Rotate(a.rope + static_cast<int64_t>(rows.position[row]) * dim, a.adjacent_pairs, dim, head);
  if (query) {
    for (int d = lane; d < dim; d += kWarp) a.q[at + d] = head[d];
    return;
  }
  const int64_t half_block = static_cast<int64_t>(kv.kv_heads) * kv.block_size * dim;
  const int64_t to = layer_at + (2 * static_cast<int64_t>(rows.block[row]) + (key ? 0 : 1)) * half_block +
                     (static_cast<int64_t>(own) * kv.block_size + rows.slot[row]) * dim;
  auto* pool = reinterpret_cast<__nv_bfloat16*>(kv.data);
  for (int d = lane; d < dim; d += kWarp) pool[to + d] = __float2bfloat16(head[d]);
}

}  // namespace

void FinishHeads(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                 const HeadsArguments& arguments) {
  Launch(stream, FinishHeadsKernel,
         {.blocks_x = rows.rows, .blocks_y = arguments.heads + 2 * kv.kv_heads, .threads = kWarp}, kv,
         layer * kv.layer_elements(), rows, arguments);
}

}  // namespace kvring::kernels::cuda
