#include <cmath>

#include "kernels/rope.h"

namespace kvring::kernels {

void RopeTable::GrowTo(int64_t positions) {
  if (positions <= positions_) return;
  values_.resize(static_cast<size_t>(positions * head_dim_));
  const int half = head_dim_ / 2;
  for (int64_t p = positions_; p < positions; ++p) {
    float* row = values_.data() + p * head_dim_;
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(theta_, -2.0 * i / head_dim_);
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  positions_ = positions;
}

void Rope(RopePairs pairs, const float* row, int head_dim, int heads, float* x) {
  const int half = head_dim / 2;
  const int step = pairs == RopePairs::kAdjacent ? 2 : 1;
  const int distance = pairs == RopePairs::kAdjacent ? 1 : half;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for (int i = 0; i < half; ++i) {
      float& first = x[i * step];
      float& second = x[i * step + distance];
      const float a = first;
      const float b = second;
      first = a * row[i] - b * row[half + i];
      second = a * row[half + i] + b * row[i];
    }
  }
}

}  // namespace kvring::kernels
