// Seeded normal floats for the kernel tests.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "common/random.h"

namespace kvring::kernels {

inline std::vector<float> RandomFloats(Random& random, size_t n, float scale = 1.0F) {
  std::vector<float> values(n);
  for (float& value : values) {
    const double radius = std::sqrt(-2.0 * std::log1p(-random.Uniform()));
    value = scale * static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * random.Uniform()));
  }
  return values;
}

}  // namespace kvring::kernels
