// DecodeModel: an engine's decode step as fixed + slope · sequences, from load reports of the whole fleet:
// what one more sequence costs each of the others, per token. The fixed part (reading the weights) is most of
// a step and nobody's fault. 0 until reports at different batch sizes have shown one. Pure; not thread-safe.
#pragma once

#include <algorithm>

#include "router/fleet/fading_line.h"

namespace kvring::router {

class DecodeModel {
 public:
  void Observe(double sequences, double step_seconds) { line_.Observe(sequences, step_seconds); }
  /// Seconds per step and sequence; 0 to the mean step's share of one sequence.
  double SecondsPerSequence() const {
    constexpr double kPriorSpread = 10 * 2.0 * 2.0;  // as strong as ten reports spread by two sequences
    if (line_.x <= 0) return 0;
    return std::clamp(line_.Slope(0, kPriorSpread), 0.0, line_.y / line_.x);
  }

 private:
  FadingLine line_;
};

}  // namespace kvring::router
