#include "common/runtime/entropy.h"

#include <sys/random.h>

#include "common/check.h"

namespace kvring {

uint64_t RandomSeed() {
  uint64_t seed = 0;
  KVRING_CHECK(getrandom(&seed, sizeof(seed), 0) == static_cast<ssize_t>(sizeof(seed)));
  return seed;
}

}  // namespace kvring
