// RMSNorm and LayerNorm of rows of f32 into bf16, the input of a matmul. One block of 128 threads per row: a
// row is read twice, the second time from the cache, and its sum of squares is one block reduction.
// Reference: rms_norm.h, layer_norm.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace kvring::kernels::cuda {

struct NormArguments {
  const float* x;       // rows x width
  const float* weight;  // width
  const float* bias;    // width; null: none. LayerNorm only
  float epsilon;
  int rows;
  int width;
  uint16_t* y;  // rows x width, bf16
};
void RmsNorm(Stream& stream, const NormArguments& arguments);
void LayerNorm(Stream& stream, const NormArguments& arguments);

}  // namespace kvring::kernels::cuda
