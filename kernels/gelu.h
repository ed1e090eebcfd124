// GELU in its tanh form (Hendrycks and Gimpel 2016): y = x/2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + 0.044715
// x^3), which is x / (1 + e^(-2u)). y may be x. The vector forms use the polynomial e^x of SwiGLU.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace kvring::kernels {

void Gelu(Isa isa, const float* x, int64_t n, float* y);
void GeluPlain(const float* x, int64_t n, float* y);

}  // namespace kvring::kernels
