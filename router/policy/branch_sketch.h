// BranchSketch: how much of the recent traffic passes each point of its prompts' chains. A count-min sketch
// (Cormode and Muthukrishnan 2005; two rows) over chain hashes at a grid of levels (each up to 8, then eight
// per octave), halved every few thousand requests. The branch key of a prompt is the first grid level whose
// share of traffic is small enough for one home to serve: where traffic branches, however long the common
// head is. Counts fall along a chain, so it is found by binary search. Fixed memory; pure; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "router/fleet/prompt_key.h"

namespace kvring::router {

class BranchSketch {
 public:
  BranchSketch() : counts_(2 * kWidth) {}

  void Count(const PromptKey& prompt);
  /// Key of the first level with at most `share` of the traffic; the deepest if none, the whole text if
  /// shorter than a block.
  uint64_t BranchKey(const PromptKey& prompt, double share) const;

 private:
  static constexpr size_t kWidth = 1 << 14;
  static constexpr uint32_t kWindow = 1 << 13;

  static size_t GridSize(size_t levels);
  static size_t GridLevel(size_t index);
  uint32_t Estimate(uint64_t hash) const;

  std::vector<uint32_t> counts_;
  uint32_t requests_ = 0;
};

}  // namespace kvring::router
