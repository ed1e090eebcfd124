// The one door to unpredictable numbers: seeds, epochs, request-id prefixes.
#pragma once

#include <cstdint>

namespace kvring {

/// 64 bits from the operating system; ends the process if it gives none.
uint64_t RandomSeed();

}  // namespace kvring
