#include "router/fleet/prefill_model.h"

#include <algorithm>

namespace kvring::router {

void PrefillModel::Observe(double tokens, double seconds) {
  constexpr double kPriorSpread = 10 * 200.0 * 200.0;  // as strong as ten requests spread by 200 tokens
  line_.Observe(tokens, seconds);
  double slope = line_.Slope(1 / kUsualTokensPerSecond, kPriorSpread);
  if (line_.x > 0) slope = std::min(slope, line_.y / line_.x);  // the fixed part is not negative
  tokens_per_second_ = 1 / std::clamp(slope, 1e-7, 1e-1);
}

double PrefillModel::FixedSeconds() const {
  return line_.n > 0 ? std::max((line_.y - line_.x / TokensPerSecond()) / line_.n, 0.0) : 0.0;
}

}  // namespace kvring::router
