// The one door to signals: block the ending ones in every thread, then wait for one in main.
#pragma once

#include "common/instant.h"

namespace kvring {

/// Blocks SIGINT, SIGTERM and SIGHUP for this thread and all made after it, and ignores SIGPIPE. First thing
/// in main.
void BlockSignals();
/// Waits for SIGINT, SIGTERM or SIGHUP and returns it.
int WaitForSignal();
/// The same for at most so long; 0: none came.
int WaitForSignal(Duration wait);

}  // namespace kvring
