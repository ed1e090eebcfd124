#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.h"

namespace kvring::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// The column of this thread; rows lie along blockIdx.y.
__device__ inline int Column() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ inline int64_t At(int width, int column) {
  return static_cast<int64_t>(blockIdx.y) * width + column;
}

__global__ void EmbedKernel(const __nv_bfloat16* table, const float* positions, const int32_t* tokens,
                            const int32_t* position, int width, float* x) {
  const int column = Column();
  if (column >= width) return;
  float value = __bfloat162float(table[static_cast<int64_t>(tokens[blockIdx.y]) * width + column]);
  if (positions != nullptr) value += positions[static_cast<int64_t>(position[blockIdx.y]) * width + column];
  x[At(width, column)] = value;
}

__device__ inline float Biased(const float* x, const float* bias, int64_t at, int column) {
  return bias == nullptr ? x[at] : x[at] + bias[column];
}

__global__ void SwiGluKernel(const float* gate, const float* gate_bias, const float* up, const float* up_bias,
                             int width, __nv_bfloat16* y) {
  const int column = Column();
  if (column >= width) return;
  const int64_t at = At(width, column);
  const float g = Biased(gate, gate_bias, at, column);
  y[at] = __float2bfloat16(g / (1.0F + __expf(-g)) * Biased(up, up_bias, at, column));
}

__global__ void GeluKernel(const float* up, const float* up_bias, int width, __nv_bfloat16* y) {
  const int column = Column();
  if (column >= width) return;
  const int64_t at = At(width, column);
  const float u = Biased(up, up_bias, at, column);
  constexpr float kSqrt2OverPi = 0.7978845608F;
  y[at] = __float2bfloat16(0.5F * u * (1.0F + tanhf(kSqrt2OverPi * (u + 0.044715F * u * u * u))));
}

__global__ void AddBiasKernel(float* x, const float* bias, int width) {
  const int column = Column();
  if (column < width) x[At(width, column)] += bias[column];
}

__global__ void GatherRowsKernel(const float* x, const int32_t* wanted, int width, float* y) {
  const int column = Column();
  if (column < width) y[At(width, column)] = x[static_cast<int64_t>(wanted[blockIdx.y]) * width + column];
}

Grid GridOf(int rows, int width) {
  return {.blocks_x = (width + kThreads - 1) / kThreads, .blocks_y = rows, .threads = kThreads};
}

}  // namespace

void Embed(Stream& stream, const EmbedArguments& a) {
  Launch(stream, EmbedKernel, GridOf(a.rows, a.width), reinterpret_cast<const __nv_bfloat16*>(a.table),
         a.positions, a.tokens, a.position, a.width, a.x);
}

void Activate(Stream& stream, const ActivationArguments& a) {
  auto* y = reinterpret_cast<__nv_bfloat16*>(a.y);
  if (a.gate == nullptr)
    return Launch(stream, GeluKernel, GridOf(a.rows, a.width), a.up, a.up_bias, a.width, y);
  Launch(stream, SwiGluKernel, GridOf(a.rows, a.width), a.gate, a.gate_bias, a.up, a.up_bias, a.width, y);
}

void AddBias(Stream& stream, float* x, const float* bias, int rows, int width) {
  Launch(stream, AddBiasKernel, GridOf(rows, width), x, bias, width);
}

void GatherRows(Stream& stream, const float* x, const int32_t* wanted, int rows, int width, float* y) {
  Launch(stream, GatherRowsKernel, GridOf(rows, width), x, wanted, width, y);
}

}  // namespace kvring::kernels::cuda
