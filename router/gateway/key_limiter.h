// KeyLimiter: what one API key may use: requests per minute, tokens per minute, requests at a time. Two
// buckets that hold a minute's worth; a request takes one from the first at its start. Tokens are known only
// at the end, so they may go into debt: while in debt nothing starts. So a key overdraws by at most what runs
// at a time. 0 is no limit. Pure; time is an argument; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/instant.h"

namespace kvring::router {

struct KeyLimits {
  double requests_per_minute = 0;
  double tokens_per_minute = 0;
  int32_t max_in_flight = 0;
};

class KeyLimiter {
 public:
  explicit KeyLimiter(const KeyLimits& limits)
      : limits_(limits), requests_(limits.requests_per_minute), tokens_(limits.tokens_per_minute) {}

  /// nullopt: it may start, and End must follow. Otherwise when to come back, at least 1 s.
  std::optional<Duration> Begin(Instant now) {
    Refill(now);
    Duration wait{};
    if (limits_.max_in_flight > 0 && in_flight_ >= limits_.max_in_flight) wait = std::chrono::seconds(1);
    if (limits_.requests_per_minute > 0 && requests_ < 1)
      wait = std::max(wait, TimeFor(1 - requests_, limits_.requests_per_minute));
    if (limits_.tokens_per_minute > 0 && tokens_ <= 0)
      wait = std::max(wait, TimeFor(1 - tokens_, limits_.tokens_per_minute));
    if (wait.count() > 0) return std::max<Duration>(wait, std::chrono::seconds(1));
    --requests_;
    ++in_flight_;
    return std::nullopt;
  }
  void End(int64_t tokens) {
    --in_flight_;
    tokens_ -= static_cast<double>(tokens);
  }
  /// What is owed stays owed.
  void SetLimits(const KeyLimits& limits) {
    requests_ += limits.requests_per_minute - limits_.requests_per_minute;
    tokens_ += limits.tokens_per_minute - limits_.tokens_per_minute;
    limits_ = limits;
  }

 private:
  static Duration TimeFor(double missing, double per_minute) {
    return FromSeconds(std::min(missing * 60 / per_minute, 3600.0));
  }
  void Refill(Instant now) {
    const double minutes = at_ < now ? ToSeconds(now - at_) / 60 : 0;
    at_ = std::max(at_, now);
    requests_ = std::min(requests_ + minutes * limits_.requests_per_minute, limits_.requests_per_minute);
    tokens_ = std::min(tokens_ + minutes * limits_.tokens_per_minute, limits_.tokens_per_minute);
  }

  KeyLimits limits_;
  double requests_;
  double tokens_;
  int32_t in_flight_ = 0;
  Instant at_{};
};

}  // namespace kvring::router
