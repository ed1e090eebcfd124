#include "kernels/cuda/launch.h"
#include "kernels/cuda/paged_kv.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxHeadDim = 256;

/// A softmax so far: largest score, sum of weights, weighted values of this lane's dimensions lane + 32 i.
/// Loops over these have a constant bound, so that they stay in registers.
template <int kLaneDims>
struct Softmax {
  float peak = -INFINITY;
  float sum = 0;
  float values[kLaneDims] = {};
};

template <int kLaneDims>
__device__ inline void Take(float score, const float (&value)[kLaneDims], Softmax<kLaneDims>& s) {
  const float peak = fmaxf(s.peak, score);
  const float keep = __expf(s.peak - peak);
  const float weight = __expf(score - peak);
  s.peak = peak;
  s.sum = s.sum * keep + weight;
  for (int i = 0; i < kLaneDims; ++i) s.values[i] = s.values[i] * keep + weight * value[i];
}

/// This lane's dimensions of a stored row, 0 beyond head_dim.
template <int kLaneDims>
__device__ inline void LoadRow(const __nv_bfloat16* row, int head_dim, float (&out)[kLaneDims]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = 0; i < kLaneDims; ++i) {
    const int d = lane + i * kWarp;
    out[i] = d < head_dim ? __bfloat162float(row[d]) : 0.0F;
  }
}

/// Where the warps of a block leave the state of one head, and the block's state of it.
struct Merged {
  float peak;
  float sum;
};
__device__ inline Merged Merge(const float* peaks, const float* sums) {
  Merged merged{peaks[0], 0};
  for (int w = 1; w < kWarps; ++w) merged.peak = fmaxf(merged.peak, peaks[w]);
  // A span of which no warp saw a position has no peak.
  if (merged.peak == -INFINITY) return merged;
  for (int w = 0; w < kWarps; ++w) merged.sum += sums[w] * __expf(peaks[w] - merged.peak);
  return merged;
}

// One block per row, KV head (its query heads in parts of kGroup) and span of positions. The heads share each
// key and value that is read. With one span the result is written, else the state, for MergeSpansKernel.
template <int kGroup, int kLaneDims>
__global__ void __launch_bounds__(kThreads, kGroup* kLaneDims > 32 ? 2 : 4)
    AttendSpanKernel(PagedKv kv, int64_t layer_at, StepRows rows, AttentionArguments a) {
  __shared__ float peaks[kGroup][kWarps];
  __shared__ float sums[kGroup][kWarps];
  __shared__ float values[kGroup][kWarps][kLaneDims * kWarp];
  const int row = static_cast<int>(blockIdx.x);
  const int all_heads = a.heads / kv.kv_heads;
  const int parts = (all_heads + kGroup - 1) / kGroup;
  const int kv_head = static_cast<int>(blockIdx.y) / parts;
  const int first_head = static_cast<int>(blockIdx.y) % parts * kGroup;
  const int span = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int dim = kv.head_dim;
  const int group = min(kGroup, all_heads - first_head);
  const int64_t half_block = static_cast<int64_t>(kv.kv_heads) * kv.block_size * dim;
  const auto* pool = reinterpret_cast<const __nv_bfloat16*>(kv.data) + layer_at +
                     static_cast<int64_t>(kv_head) * kv.block_size * dim;
  const int32_t* table = rows.tables + rows.table[row];
  const int last = rows.position[row];
  const int seen = a.window > 0 && last >= a.window ? last - a.window + 1 : 0;
  const int first = max(seen, span * kSpanPositions);
  const int end = min(last + 1, a.spans == 1 ? last + 1 : (span + 1) * kSpanPositions);

  const int64_t q_at = (static_cast<int64_t>(row) * a.heads + kv_head * all_heads + first_head) * dim;
  float q[kGroup][kLaneDims];
  for (int g = 0; g < kGroup; ++g) {
    for (int i = 0; i < kLaneDims; ++i) {
      const int d = lane + i * kWarp;
      q[g][i] = g < group && d < dim ? a.q[q_at + g * dim + d] * a.scale : 0.0F;
    }
  }
  Softmax<kLaneDims> own[kGroup];
  for (int p = first + warp; p < end; p += kWarps) {
    const int64_t block = static_cast<int64_t>(table[p / kv.block_size]) * 2 * half_block;
    const __nv_bfloat16* at = pool + block + static_cast<int64_t>(p % kv.block_size) * dim;
    float key[kLaneDims];
    float value[kLaneDims];
    LoadRow(at, dim, key);
    LoadRow(at + half_block, dim, value);
    for (int g = 0; g < kGroup; ++g) {
      float dot = 0;
      for (int i = 0; i < kLaneDims; ++i) dot += q[g][i] * key[i];
      Take(WarpSum(dot), value, own[g]);
    }
  }

  for (int g = 0; g < kGroup; ++g) {
    if (lane == 0) {
      peaks[g][warp] = own[g].peak;
      sums[g][warp] = own[g].sum;
    }
    for (int i = 0; i < kLaneDims; ++i) values[g][warp][lane + i * kWarp] = own[g].values[i];
  }
  __syncthreads();
  for (int g = 0; g < group; ++g) {
    const Merged merged = Merge(peaks[g], sums[g]);
    const int64_t state =
        ((static_cast<int64_t>(row) * a.heads + kv_head * all_heads + first_head + g) * a.spans + span) *
        SpanStateFloats(dim);
    for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
      float value = 0;
      for (int w = 0; w < kWarps; ++w) {
        if (peaks[g][w] != -INFINITY) value += values[g][w][d] * __expf(peaks[g][w] - merged.peak);
      }
      if (a.spans == 1) {
        reinterpret_cast<__nv_bfloat16*>(a.out)[q_at + g * dim + d] = __float2bfloat16(value / merged.sum);
      } else {
        a.states[state + 2 + d] = value;
      }
    }
    if (a.spans > 1 && threadIdx.x == 0) {
      a.states[state] = merged.peak;
      a.states[state + 1] = merged.sum;
    }
  }
}

// One block per row and query head: its spans' states become the result.
__global__ void __launch_bounds__(kThreads) MergeSpansKernel(AttentionArguments a, int head_dim) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * a.heads + blockIdx.y;
  const int64_t stride = SpanStateFloats(head_dim);
  const float* states = a.states + head * a.spans * stride;
  float peak = -INFINITY;
  for (int s = 0; s < a.spans; ++s) peak = fmaxf(peak, states[s * stride]);
  float sum = 0;
  for (int s = 0; s < a.spans; ++s) {
    if (states[s * stride] != -INFINITY) sum += states[s * stride + 1] * __expf(states[s * stride] - peak);
  }
  for (int d = static_cast<int>(threadIdx.x); d < head_dim; d += kThreads) {
    float value = 0;
    for (int s = 0; s < a.spans; ++s) {
      if (states[s * stride] != -INFINITY)
        value += states[s * stride + 2 + d] * __expf(states[s * stride] - peak);
    }
    reinterpret_cast<__nv_bfloat16*>(a.out)[head * head_dim + d] = __float2bfloat16(value / sum);
  }
}

template <int kGroup>
void LaunchGroup(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                 const AttentionArguments& a) {
  const int parts = (a.heads / kv.kv_heads + kGroup - 1) / kGroup;
  const Grid grid{
      .blocks_x = rows.rows, .blocks_y = kv.kv_heads * parts, .blocks_z = a.spans, .threads = kThreads};
  const int64_t layer_at = layer * kv.layer_elements();
  if (kv.head_dim <= 64) return Launch(stream, AttendSpanKernel<kGroup, 2>, grid, kv, layer_at, rows, a);
  if (kv.head_dim <= 128) return Launch(stream, AttendSpanKernel<kGroup, 4>, grid, kv, layer_at, rows, a);
  Launch(stream, AttendSpanKernel<kGroup, 8>, grid, kv, layer_at, rows, a);
}

}  // namespace

int SpansOf(int longest) { return (longest + kSpanPositions - 1) / kSpanPositions; }

void PagedAttention(Stream& stream, const PagedKv& kv, int layer, const StepRows& rows,
                    const AttentionArguments& a) {
  const int group = a.heads / kv.kv_heads;
  if (group == 1) {
    LaunchGroup<1>(stream, kv, layer, rows, a);
  } else if (group <= 4) {
    LaunchGroup<4>(stream, kv, layer, rows, a);
  } else {
    LaunchGroup<8>(stream, kv, layer, rows, a);
  }
  if (a.spans > 1) {
    Launch(stream, MergeSpansKernel, {.blocks_x = rows.rows, .blocks_y = a.heads, .threads = kThreads}, a,
           kv.head_dim);
  }
}

}  // namespace kvring::kernels::cuda
