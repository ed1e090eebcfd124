// PromptMemory: the prompts of late, bounded in bytes at insert, and which of them explains a new one: the
// one with the longest equal start (found over the block hash chain), and where that start is short, those
// that hold most of the content-defined chunks behind it. A prompt that goes on where a kept one ended takes
// its place: a conversation is kept once. The oldest are forgotten first.
//
// All prompts are one chain here, whatever model or tenant they are of: it is the text that is compared.
// Pure; not thread-safe. Costs O(bytes of the prompt).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/block_hash.h"
#include "router/ledger/divergence.h"

namespace kvring::router {

class PromptMemory {
 public:
  /// Kept texts take at most `max_bytes` and are at most kMaxPrompts, and their index about half as much
  /// again. A prompt larger than a quarter of it is not kept.
  explicit PromptMemory(size_t max_bytes);
  static constexpr size_t kMaxPrompts = size_t{1} << 17;

  struct Match {
    size_t equal_bytes = 0;  // the longest start of the prompt that a kept one has, 0: none is known
    std::optional<Divergence>
        divergence;  // from the one that explains most, where there is something to tell
  };
  Match Find(std::string_view prompt) const;

  void Add(std::string prompt);

  size_t bytes() const { return bytes_; }
  size_t prompts() const { return prompts_; }

 private:
  using Id = uint64_t;
  struct Kept {
    Id id = 0;
    std::string text;  // empty: a later prompt took its place
  };

  const std::string* TextOf(Id id) const;
  std::optional<Id> DeepestHolder(const std::vector<BlockHash>& chain) const;
  std::vector<Id> LikelySources(std::string_view prompt, size_t begin) const;
  void Index(const std::string& text, const std::vector<BlockHash>& chain, Id id);
  void Forget(Kept& kept);

  size_t max_bytes_;
  size_t bytes_ = 0;
  size_t prompts_ = 0;
  Id next_id_ = 0;
  std::deque<Kept> kept_;                       // by id, without a gap
  absl::flat_hash_map<uint64_t, Id> by_block_;  // the last holder; look-up only
  absl::flat_hash_map<uint64_t, Id> by_chunk_;
};

}  // namespace kvring::router
