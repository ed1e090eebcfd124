// KVRING_CHECK: a programmer's error ends the process with file, line and words, in release builds too. Input
// errors never come here; they are absl::Status at the edges.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kvring::internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}
}  // namespace kvring::internal

#define KVRING_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::kvring::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                  \
  } while (false)
