#include "router/fleet/engine_blocks.h"

namespace kvring::router {

void EngineBlocks::Forget(uint32_t replica) {
  if (replica >= held_.size()) return;
  total_ -= held_[replica].blocks.size();
  held_[replica] = {};
}

void EngineBlocks::Apply(uint32_t replica, const CacheEventBatch& batch) {
  if (replica >= held_.size()) held_.resize(replica + 1);
  const bool follows =
      held_[replica].epoch == batch.epoch && held_[replica].next_sequence == batch.first_sequence;
  if (!follows) Forget(replica);
  Held& held = held_[replica];
  held.epoch = batch.epoch;
  held.next_sequence = batch.first_sequence + batch.events.size();
  for (const CacheEvent& event : batch.events) {
    switch (event.kind) {
      case CacheEventKind::kStored:
        if (total_ < max_blocks_) total_ += held.blocks.insert(event.block.value).second;
        break;
      case CacheEventKind::kRemoved:
        total_ -= held.blocks.erase(event.block.value);
        break;
      case CacheEventKind::kCleared:
        total_ -= held.blocks.size();
        held.blocks.clear();
        break;
    }
  }
}

std::vector<BlockHash> EngineBlocks::ChainOf(const PromptKey& prompt, int32_t block_tokens) {
  return HashChain(UnsaltedRoot(prompt), prompt.bytes, static_cast<size_t>(block_tokens) * sizeof(TokenId));
}

size_t EngineBlocks::Depth(uint32_t replica, const std::vector<BlockHash>& chain) const {
  if (replica >= held_.size()) return 0;
  size_t known = 0, unknown = chain.size() + 1;
  while (unknown - known > 1) {
    const size_t middle = known + (unknown - known) / 2;
    (held_[replica].blocks.contains(chain[middle - 1].value) ? known : unknown) = middle;
  }
  return known;
}

}  // namespace kvring::router
