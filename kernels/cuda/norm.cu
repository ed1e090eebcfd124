#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(const float* x, const float* weight, float epsilon, int width, __nv_bfloat16* y) {
  __shared__ float scratch[kThreads / kWarp];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) squares += x[row + i] * x[row + i];
  const float scale = rsqrtf(BlockSum(squares, scratch) / static_cast<float>(width) + epsilon);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    y[row + i] = __float2bfloat16(x[row + i] * scale * weight[i]);
}

__global__ void __launch_bounds__(kThreads)
    LayerNormKernel(const float* x, const float* weight, const float* bias, float epsilon, int width,
                    __nv_bfloat16* y) {
  __shared__ float mean_scratch[kThreads / kWarp];
  __shared__ float square_scratch[kThreads / kWarp];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * width;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) sum += x[row + i];
  const float mean = BlockSum(sum, mean_scratch) / static_cast<float>(width);
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    squares += (x[row + i] - mean) * (x[row + i] - mean);
  const float scale = rsqrtf(BlockSum(squares, square_scratch) / static_cast<float>(width) + epsilon);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const float shift = bias == nullptr ? 0.0F : bias[i];
    y[row + i] = __float2bfloat16((x[row + i] - mean) * scale * weight[i] + shift);
  }
}

}  // namespace

void RmsNorm(Stream& stream, const NormArguments& a) {
  Launch(stream, RmsNormKernel, {.blocks_x = a.rows, .threads = kThreads}, a.x, a.weight, a.epsilon, a.width,
         reinterpret_cast<__nv_bfloat16*>(a.y));
}

void LayerNorm(Stream& stream, const NormArguments& a) {
  Launch(stream, LayerNormKernel, {.blocks_x = a.rows, .threads = kThreads}, a.x, a.weight, a.bias, a.epsilon,
         a.width, reinterpret_cast<__nv_bfloat16*>(a.y));
}

}  // namespace kvring::kernels::cuda
