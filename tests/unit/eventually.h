// Waiting for what another thread is about to do.
#pragma once

#include <chrono>
#include <thread>

#include "common/runtime/clock.h"

namespace kvring {

/// True as soon as `condition()` is; false after 10 s.
template <class Condition>
bool Eventually(Condition condition) {
  const Instant end = Now() + std::chrono::seconds(10);
  while (!condition()) {
    if (Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace kvring
