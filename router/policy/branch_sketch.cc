#include "router/policy/branch_sketch.h"

#include <algorithm>
#include <bit>

#include "common/block_hash.h"

namespace kvring::router {

// 0 … 7 are themselves; then level = (8 + i mod 8) << (i / 8 - 1): 8 … 15, 16, 18 … 30, 32, 36 …
size_t BranchSketch::GridLevel(size_t index) {
  return index < 8 ? index : (8 + index % 8) << (index / 8 - 1);
}

// Number of grid levels below `levels`.
size_t BranchSketch::GridSize(size_t levels) {
  if (levels <= 8) return levels;
  const size_t last = levels - 1;
  const auto octave = static_cast<size_t>(std::bit_width(last)) - 4;  // 8 … 15: 0
  return 8 * (octave + 1) + (last >> octave) % 8 + 1;
}

uint32_t BranchSketch::Estimate(uint64_t hash) const {
  return std::min(counts_[hash % kWidth], counts_[kWidth + (hash >> 32) % kWidth]);
}

void BranchSketch::Count(const PromptKey& prompt) {
  const size_t grid = GridSize(prompt.chain.size());
  for (size_t i = 0; i < grid; ++i) {
    const uint64_t hash = prompt.chain[GridLevel(i)].value;
    ++counts_[hash % kWidth];
    ++counts_[kWidth + (hash >> 32) % kWidth];
  }
  if (++requests_ < kWindow) return;
  for (uint32_t& count : counts_) count /= 2;
  requests_ /= 2;
}

uint64_t BranchSketch::BranchKey(const PromptKey& prompt, double share) const {
  if (prompt.chain.empty()) return ChainNext(prompt.root, prompt.bytes).value;
  const double most = std::max(share * requests_, 1.0);
  size_t shared = 0, small = GridSize(prompt.chain.size()) - 1;
  while (shared < small) {
    const size_t middle = (shared + small) / 2;
    if (Estimate(prompt.chain[GridLevel(middle)].value) <= most) {
      small = middle;
    } else {
      shared = middle + 1;
    }
  }
  return prompt.chain[GridLevel(small)].value;
}

}  // namespace kvring::router
