// PrefixHistory: how much of a prompt's start was seen before, in whole blocks of bytes, over all prompts of
// a key: a cache of infinite memory as long as its own memory lasts. Then the older half is forgotten, all
// that was not seen since the last such cut; `forgotten` says so. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "common/block_hash.h"

namespace kvring::router {

class PrefixHistory {
 public:
  static constexpr size_t kBlockBytes = 64;

  /// At most `max_blocks` are kept, about 10 to 20 B each.
  explicit PrefixHistory(size_t max_blocks) : half_(max_blocks / 2) {}

  /// Bytes at the start of `prompt` that were seen under `root`; a multiple of kBlockBytes. Adds the prompt.
  size_t SeenThenAdd(BlockHash root, std::string_view prompt);
  bool forgotten() const { return forgotten_; }

 private:
  bool Seen(BlockHash block) const;
  void Add(BlockHash block);

  size_t half_;
  bool forgotten_ = false;
  absl::flat_hash_set<uint64_t> young_;  // look-up only
  absl::flat_hash_set<uint64_t> old_;
};

}  // namespace kvring::router
