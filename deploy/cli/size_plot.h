// The plot of `kvring size --svg`: KV bytes of one conversation over its tokens, flat where a sliding window
// is full, and the room of the card as a line where it is known and in sight. Pure: SVG text out.
#pragma once

#include <cstdint>
#include <string>

#include "replica/kv/kv_size.h"

namespace kvring::cli {

/// tokens > 0; room_bytes 0: not drawn.
std::string SizePlot(const replica::KvShape& shape, int64_t tokens, int64_t batch, int64_t room_bytes);

}  // namespace kvring::cli
