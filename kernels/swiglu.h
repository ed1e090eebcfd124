// SwiGLU (Shazeer 2020): y_i = silu(gate_i) * up_i, silu(g) = g / (1 + e^-g). y may be gate or up.
// The vector forms use a polynomial e^x with relative error below 2e-7.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace kvring::kernels {

void SwiGlu(Isa isa, const float* gate, const float* up, int64_t n, float* y);
void SwiGluPlain(const float* gate, const float* up, int64_t n, float* y);

}  // namespace kvring::kernels
