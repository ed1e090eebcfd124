// Instant: a point in time as a value. Pure code takes `now` as an argument and never asks a clock; the live
// system fills it from common/runtime/clock.h (monotonic), the simulator from its event queue. The origin is
// unspecified.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace kvring {

using Duration = std::chrono::nanoseconds;

struct Instant {
  int64_t ns = 0;

  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend constexpr Instant operator+(Instant t, Duration d) { return {t.ns + d.count()}; }
  friend constexpr Instant operator-(Instant t, Duration d) { return {t.ns - d.count()}; }
  friend constexpr Duration operator-(Instant a, Instant b) { return Duration(a.ns - b.ns); }
};

constexpr double ToSeconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }
constexpr double ToMillis(Duration d) { return static_cast<double>(d.count()) * 1e-6; }
constexpr Duration FromSeconds(double s) { return Duration(static_cast<int64_t>(s * 1e9)); }
constexpr Duration FromMillis(double ms) { return Duration(static_cast<int64_t>(ms * 1e6)); }

}  // namespace kvring
