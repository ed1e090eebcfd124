// CapacityEstimator: the KV capacity of a replica that does not tell it, learnt from what it evicted. Where
// much less was found than was predicted, the replica holds less than is believed of it: the estimate falls
// to a little under what was believed, but not again before a sixteenth of it was sent anew, since requests
// under way share one cause. Where much more was found, it holds more: the estimate grows by that, a
// sixteenth at least. So it hovers just under the capacity that our traffic really has there, other routers'
// share taken off. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvring::router {

class CapacityEstimator {
 public:
  struct Observation {
    int64_t predicted = 0;  // tokens expected in the cache
    int64_t cached = 0;     // tokens found there
    int64_t prompt = 0;
    int64_t held = 0;  // tokens believed to be there at the moment
  };

  void Observe(const Observation& seen) {
    sent_since_cut_ += std::max<int64_t>(seen.prompt - seen.cached, 0);
    const int64_t noise = std::max<int64_t>(kNoiseTokens, seen.predicted / 20);
    if (seen.predicted - seen.cached > noise) {
      Cut(seen);
    } else if (tokens_ > 0 && seen.cached - seen.predicted > noise) {
      tokens_ += std::min(std::max(seen.cached - seen.predicted, tokens_ / 16), tokens_ / 4);
    }
  }

  /// 0: nothing was ever missed.
  int64_t tokens() const { return tokens_; }

 private:
  static constexpr int64_t kNoiseTokens = 64;

  void Cut(const Observation& seen) {
    const int64_t believed = tokens_ > 0 ? std::min(tokens_, seen.held) : seen.held;
    if (tokens_ > 0 && sent_since_cut_ < tokens_ / 16) return;
    tokens_ = std::max(believed - believed / 16, seen.prompt);
    sent_since_cut_ = 0;
  }

  int64_t tokens_ = 0;
  int64_t sent_since_cut_ = 0;
};

}  // namespace kvring::router
