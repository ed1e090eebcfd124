// PrefillModel: time to first token of the fleet as fixed + u / R, u the uncached prompt tokens: least
// squares over all replicas' requests with fading memory (about 1,000). R is the slope, so fixed latency,
// and decode time where only whole answers are seen, do not disturb it. 10,000 tokens/s until there is
// evidence. Pure; not thread-safe.
#pragma once

#include "router/fleet/fading_line.h"

namespace kvring::router {

class PrefillModel {
 public:
  void Observe(double tokens, double seconds);
  double TokensPerSecond() const { return tokens_per_second_; }  // asked for each candidate of each decision
  double FixedSeconds() const;
  bool known() const { return line_.n >= 20; }

 private:
  static constexpr double kUsualTokensPerSecond = 10'000;

  FadingLine line_;
  double tokens_per_second_ = kUsualTokensPerSecond;
};

}  // namespace kvring::router
