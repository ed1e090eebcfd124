#include "replica/model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope.h"

namespace kvring::replica {
namespace {

double Llama3(const RopeScaling& s, double frequency) {
  const double waves = s.original_context * frequency / (2 * std::numbers::pi);  // in the original length
  if (waves > s.high_freq_factor) return frequency;
  if (waves < s.low_freq_factor) return frequency / s.factor;
  const double blend = (waves - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

// The (fractional) pair that turns `turns` times in the original length.
double PairOfTurns(const RopeScaling& s, double turns, int head_dim, double theta) {
  return head_dim * std::log(s.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void Yarn(const RopeScaling& s, int head_dim, double theta, std::vector<double>& frequencies) {
  const double low = std::max(std::floor(PairOfTurns(s, s.beta_fast, head_dim, theta)), 0.0);
  const double high = std::min(std::ceil(PairOfTurns(s, s.beta_slow, head_dim, theta)), head_dim - 1.0);
  const double width = high == low ? 0.001 : high - low;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequencies[i] = frequencies[i] / s.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

}  // namespace

std::vector<double> ScaledFrequencies(const RopeScaling& scaling, int head_dim, double theta) {
  std::vector<double> frequencies = kernels::RopeFrequencies(head_dim, theta);
  if (scaling.kind == RopeScalingKind::kYarn) Yarn(scaling, head_dim, theta, frequencies);
  for (double& frequency : frequencies) {
    if (scaling.kind == RopeScalingKind::kLinear) frequency /= scaling.factor;
    if (scaling.kind == RopeScalingKind::kLlama3) frequency = Llama3(scaling, frequency);
  }
  return frequencies;
}

double RopeMagnitude(const RopeScaling& scaling) {
  if (scaling.kind != RopeScalingKind::kYarn) return 1;
  if (scaling.attention_factor.has_value()) return *scaling.attention_factor;
  return scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1;
}

}  // namespace kvring::replica
