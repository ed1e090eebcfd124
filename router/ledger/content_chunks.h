// Content-defined chunks: borders that depend only on the bytes around them, so that a text that was moved or
// has something new before it falls into the same chunks again (FastCDC's gear hash, Xia et al. 2016: h = 2h
// + G[byte]; a border where six bits of h are zero: about 64 B a chunk). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvring::router {

struct ContentChunk {
  uint64_t hash = 0;
  size_t begin = 0;
  size_t length = 0;
};

inline constexpr size_t kMinChunkBytes = 24;
inline constexpr size_t kMaxChunkBytes = 256;

/// The chunks of `text` from `begin` to its end, in order, without a gap; at most `limit` of them.
std::vector<ContentChunk> ContentChunks(std::string_view text, size_t begin, size_t limit);

}  // namespace kvring::router
