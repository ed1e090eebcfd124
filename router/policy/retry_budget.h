// RetryBudget: how many retries the whole fleet gets, so that failing replicas are not also buried under
// second tries. A bucket of tokens: each request puts in `share`, each second `per_second`, a retry takes 1;
// at most `burst` are kept. So retries stay below share · requests + per_second · seconds, and a fleet with
// little traffic can still retry. Pure; time is an argument; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/instant.h"

namespace kvring::router {

struct RetryRules {
  double share = 0.2;  // retries per request
  double per_second = 10;
  double burst = 100;
};

class RetryBudget {
 public:
  explicit RetryBudget(const RetryRules& rules) : rules_(rules), tokens_(rules.burst) {}

  void OnRequest() { tokens_ = std::min(tokens_ + rules_.share, rules_.burst); }
  /// False: the retry is refused, and counted.
  bool Take(Instant now) {
    if (at_ < now) tokens_ = std::min(tokens_ + rules_.per_second * ToSeconds(now - at_), rules_.burst);
    at_ = std::max(at_, now);
    if (tokens_ < 1) {
      ++refused_;
      return false;
    }
    --tokens_;
    return true;
  }
  uint64_t refused() const { return refused_; }

 private:
  RetryRules rules_;
  double tokens_;
  Instant at_{};
  uint64_t refused_ = 0;
};

}  // namespace kvring::router
