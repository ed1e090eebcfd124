// PrefillModel: time to first token of the fleet as fixed + u / R, u the uncached prompt tokens: least
// squares over all replicas' requests with fading memory (about 1,000). R is the slope, so fixed latency,
// and decode time where only whole answers are seen, do not disturb it. 10,000 tokens/s until there is
// evidence. Pure; not thread-safe.
#pragma once

namespace kvring::router {

class PrefillModel {
 public:
  void Observe(double tokens, double seconds);
  double TokensPerSecond() const;
  double FixedSeconds() const;
  bool known() const { return n_ >= 20; }

 private:
  static constexpr double kKeep = 0.999;
  double n_ = 0, u_ = 0, y_ = 0, uu_ = 0, uy_ = 0;
};

}  // namespace kvring::router
