// ArgMin over slots, ties drawn uniformly (reservoir of one), so that no place in the list is favoured. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "common/random.h"

namespace kvring::router {

/// `slots` is not empty.
template <class Cost>
uint32_t ArgMin(std::span<const uint32_t> slots, Random& random, Cost&& cost) {
  uint32_t best = slots.front();
  double least = cost(best);
  uint64_t ties = 1;
  for (const uint32_t slot : slots.subspan(1)) {
    const double c = cost(slot);
    if (c > least) continue;
    ties = c < least ? 1 : ties + 1;
    if (c < least || random.Below(ties) == 0) best = slot;
    least = c;
  }
  return best;
}

}  // namespace kvring::router
