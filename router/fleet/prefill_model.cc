#include "router/fleet/prefill_model.h"

#include <algorithm>

namespace kvring::router {

void PrefillModel::Observe(double tokens, double seconds) {
  n_ = n_ * kKeep + 1;
  u_ = u_ * kKeep + tokens;
  y_ = y_ * kKeep + seconds;
  uu_ = uu_ * kKeep + tokens * tokens;
  uy_ = uy_ * kKeep + tokens * seconds;
}

double PrefillModel::TokensPerSecond() const {
  constexpr double kUsual = 10'000;
  constexpr double kPriorSpread = 10 * 200.0 * 200.0;  // as strong as ten requests spread by 200 tokens
  const double variance = n_ > 0 ? uu_ - u_ * u_ / n_ : 0, covariance = n_ > 0 ? uy_ - u_ * y_ / n_ : 0;
  double slope = (covariance + kPriorSpread / kUsual) / (variance + kPriorSpread);
  if (u_ > 0) slope = std::min(slope, y_ / u_);  // the fixed part is not negative
  return 1 / std::clamp(slope, 1e-7, 1e-1);
}

double PrefillModel::FixedSeconds() const {
  return n_ > 0 ? std::max((y_ - u_ / TokensPerSecond()) / n_, 0.0) : 0.0;
}

}  // namespace kvring::router
