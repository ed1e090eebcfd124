// RopeScaling: how a model stretches RoPE past the length it was first trained on, as frequencies per pair of
// a head (f_i = theta^(-2i/d) unscaled, wavelength 2 pi / f_i):
//   linear  f_i / factor
//   llama3  f_i above original/high waves, f_i / factor below original/low waves, between them blended
//   linearly in
//           original/wavelength (Llama 3.1)
//   yarn    f_i for pairs that turn more than beta_fast times in the original length, f_i / factor for those
//   below
//           beta_slow, a linear ramp over i between; turned values times 0.1 ln(factor) + 1 (Peng et al.
//           2023)
// Pure.
#pragma once

#include <optional>
#include <vector>

namespace kvring::replica {

enum class RopeScalingKind { kNone, kLinear, kLlama3, kYarn };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  double original_context = 0;
  double low_freq_factor = 1;              // llama3
  double high_freq_factor = 4;             // llama3
  double beta_fast = 32;                   // yarn
  double beta_slow = 1;                    // yarn
  std::optional<double> attention_factor;  // yarn: the magnitude, instead of the formula
};

/// One frequency per pair of a head.
std::vector<double> ScaledFrequencies(const RopeScaling& scaling, int head_dim, double theta);
/// What the turned values are multiplied by.
double RopeMagnitude(const RopeScaling& scaling);

}  // namespace kvring::replica
