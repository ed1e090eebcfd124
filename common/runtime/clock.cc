#include "common/runtime/clock.h"

#include <cstdio>
#include <ctime>

namespace kvring {

Instant Now() { return {std::chrono::steady_clock::now().time_since_epoch().count()}; }

int64_t UnixSeconds() { return static_cast<int64_t>(std::time(nullptr)); }

std::string UtcTimestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char text[80];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900,
                utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000);
  return text;
}

}  // namespace kvring
