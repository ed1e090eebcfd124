// What the fuzz targets with a corpus share: a check that ends the run with exit code 3, so that a canary
// build, whose check is wrong on purpose, is told from a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz check failed: %s\n", what);
  std::fflush(stderr);
#ifdef KVRING_FUZZ_CANARY
  std::_Exit(3);
#else
  std::abort();
#endif
}
