#include "router/ledger/content_chunks.h"

#include <algorithm>
#include <array>

#include "common/block_hash.h"
#include "common/random.h"

namespace kvring::router {
namespace {

// Bits 26 to 31: they depend on the last 32 bytes, so borders agree again 32 bytes behind a change.
constexpr uint64_t kBorderMask = uint64_t{63} << 26;

constexpr std::array<uint64_t, 256> MakeGear() {
  std::array<uint64_t, 256> gear{};
  for (size_t i = 0; i < gear.size(); ++i) gear[i] = MixBits(i);
  return gear;
}
constexpr std::array<uint64_t, 256> kGear = MakeGear();

size_t ChunkEnd(std::string_view text, size_t begin) {
  const size_t last = std::min(text.size(), begin + kMaxChunkBytes);
  uint64_t hash = 0;
  for (size_t i = begin; i < last; ++i) {
    hash = (hash << 1) + kGear[static_cast<unsigned char>(text[i])];
    if (i + 1 - begin >= kMinChunkBytes && (hash & kBorderMask) == 0) return i + 1;
  }
  return last;
}

}  // namespace

std::vector<ContentChunk> ContentChunks(std::string_view text, size_t begin, size_t limit) {
  std::vector<ContentChunk> chunks;
  while (begin < text.size() && chunks.size() < limit) {
    const size_t end = ChunkEnd(text, begin);
    chunks.push_back({HashName(text.substr(begin, end - begin)), begin, end - begin});
    begin = end;
  }
  return chunks;
}

}  // namespace kvring::router
