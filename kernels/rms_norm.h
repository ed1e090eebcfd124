// RMSNorm (Zhang and Sennrich 2019): y_i = x_i / sqrt(mean(x^2) + eps) * weight_i. y may be x.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace kvring::kernels {

struct RmsNormParams {
  const float* weight;  // n
  float eps;
};
void RmsNorm(Isa isa, const float* x, int64_t n, const RmsNormParams& params, float* y);
void RmsNormPlain(const float* x, int64_t n, const RmsNormParams& params, float* y);

}  // namespace kvring::kernels
