// KvEventTranslator: an engine's events in the router's terms. Engines name blocks by hashes of their own,
// seeded as they like; with a stored block they tell its tokens. From these our chain hash follows, given the
// parent's, so an engine's name is remembered with the chain hash that it stands for. What routing cannot use
// (other media, salted or multi-modal blocks, and what hangs on those) is left out; a block on an unknown
// parent gets an event that the core takes for a gap. Remembers at most `max_blocks` names; one more is
// forgotten, and what hangs on it then counts as unknown. Pure; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/events/kv_event_decoder.h"
#include "router/fleet/replica_types.h"

namespace kvring::router {

class KvEventTranslator {
 public:
  explicit KvEventTranslator(size_t max_blocks = 4'000'000) : max_blocks_(max_blocks) {}

  struct Translated {
    std::vector<CacheEvent> events;
    int32_t block_tokens = 0;  // of the stored blocks; 0: none
  };
  /// `model`: the name under which requests ask for the base model.
  Translated Translate(const KvEventBatch& batch, const std::string& model);
  /// Another life: its names are others.
  void Reset() { known_.clear(); }

 private:
  struct Known {
    BlockHash chain;
    bool usable = false;  // false: left out, and so is what hangs on it
  };
  void Store(const KvEvent& event, const std::string& model, Translated& out);
  void Remove(const KvEvent& event, Translated& out);

  size_t max_blocks_;
  absl::flat_hash_map<uint64_t, Known> known_;  // by the engine's hash; look-up only
};

}  // namespace kvring::router
