#include <cmath>

#include "kernels/rope.h"

namespace kvring::kernels {

std::vector<double> RopeFrequencies(int head_dim, double theta) {
  std::vector<double> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / head_dim));
  return frequencies;
}

void RopeTable::GrowTo(int64_t positions) {
  if (positions <= positions_) return;
  values_.resize(static_cast<size_t>(positions * head_dim()));
  const size_t half = frequencies_.size();
  for (int64_t p = positions_; p < positions; ++p) {
    float* row = values_.data() + p * head_dim();
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies_[i];
      row[i] = static_cast<float>(magnitude_ * std::cos(angle));
      row[half + i] = static_cast<float>(magnitude_ * std::sin(angle));
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
