// PooledLru: the hit rate of one least-recently-used cache of the whole fleet's size, as a shadow of a trace:
// answers take no room, and a part-filled last block that was seen before counts with the tokens it has. An
// independent measure of a trace's locality, not of an engine. Pure.
#pragma once

#include <cstdint>

#include "sim/trace.h"

namespace kvring::sim {

/// Share of prompt tokens found, in [0, 1], over the requests in order. Each span is one block. Requests that
/// wait for others are not for this: their prompts depend on the run.
double PooledLruHitRate(const Trace& trace, int64_t capacity_tokens);

}  // namespace kvring::sim
