// LayerNorm (Ba, Kiros and Hinton 2016): y_i = (x_i - mean(x)) / sqrt(variance(x) + eps) * weight_i + bias_i.
// y may be x.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace kvring::kernels {

struct LayerNormParams {
  const float* weight;  // n
  const float* bias;    // n, or null: none
  float eps;
};
void LayerNorm(Isa isa, const float* x, int64_t n, const LayerNormParams& params, float* y);
void LayerNormPlain(const float* x, int64_t n, const LayerNormParams& params, float* y);

}  // namespace kvring::kernels
