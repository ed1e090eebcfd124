// The one door to clocks. Shells read time here and pass it on; pure rooms never include this.
#pragma once

#include <string>

#include "common/instant.h"

namespace kvring {

/// Monotonic time of this process.
Instant Now();
/// Seconds since the Unix epoch, for what people and other systems read (`created`, log lines).
int64_t UnixSeconds();
/// UTC as 2026-11-30T07:15:04.123Z.
std::string UtcTimestamp();

}  // namespace kvring
