#include "router/fleet/engine_blocks.h"

namespace kvring::router {

std::string_view EventsStateName(EventsState state) {
  switch (state) {
    case EventsState::kWhole:
      return "whole";
    case EventsState::kPartial:
      return "partial";
    case EventsState::kMissing:
      return "missing";
    case EventsState::kNone:
      break;
  }
  return "none";
}

void EngineBlocks::Clear(Held& held) {
  total_ -= held.blocks.size();
  held.blocks.clear();
}

void EngineBlocks::Forget(uint32_t replica) {
  if (replica >= held_.size()) return;
  Clear(held_[replica]);
  held_[replica] = {};
}

EventsTaken EngineBlocks::Missing(Held& held, uint64_t wanted) {
  if (held.state != EventsState::kMissing) ++held.gaps;
  held.state = EventsState::kMissing;
  held.next_sequence = wanted;
  return {BatchFate::kGap, wanted};
}

EventsTaken EngineBlocks::Apply(uint32_t replica, const CacheEventBatch& batch) {
  if (replica >= held_.size()) held_.resize(replica + 1);
  Held& held = held_[replica];
  const bool anew = batch.start != BatchStart::kFollows || !held.heard || held.epoch != batch.epoch;
  if (!anew && batch.first_sequence < held.next_sequence) {
    ++held.repeats;
    return {BatchFate::kIgnored};
  }
  if (!anew && batch.first_sequence > held.next_sequence) return Missing(held, held.next_sequence);
  if (anew) {
    Clear(held);
    held.epoch = batch.epoch;
    held.heard = true;
    held.state = batch.start == BatchStart::kResumes ? EventsState::kPartial : EventsState::kWhole;
  } else if (held.state == EventsState::kMissing) {
    held.state = EventsState::kWhole;
  }
  if (batch.block_tokens > 0) held.block_tokens = batch.block_tokens;
  held.next_sequence = batch.first_sequence + (batch.numbers > 0 ? batch.numbers : batch.events.size());
  for (const CacheEvent& event : batch.events) {
    if (Take(held, event) || held.state == EventsState::kPartial) continue;
    Clear(held);
    return Missing(held, 0);
  }
  return {BatchFate::kApplied};
}

// False: it hangs on a block that nobody told of.
bool EngineBlocks::Take(Held& held, const CacheEvent& event) {
  switch (event.kind) {
    case CacheEventKind::kStored:
      if (event.parent && !held.blocks.contains(event.parent->value)) return total_ >= max_blocks_;
      if (total_ < max_blocks_) total_ += held.blocks.insert(event.block.value).second;
      break;
    case CacheEventKind::kRemoved:
      total_ -= held.blocks.erase(event.block.value);
      break;
    case CacheEventKind::kCleared:  // from here on all is known
      Clear(held);
      held.state = EventsState::kWhole;
      break;
  }
  return true;
}

EventsView EngineBlocks::View(uint32_t replica) const {
  if (replica >= held_.size()) return {};
  const Held& held = held_[replica];
  return {held.state, held.block_tokens, held.blocks.size(), held.gaps, held.repeats};
}

int32_t EngineBlocks::BlockTokens(uint32_t replica) const {
  if (replica >= held_.size() || held_[replica].state == EventsState::kMissing) return 0;
  return held_[replica].block_tokens;
}

std::vector<BlockHash> EngineBlocks::ChainOf(const PromptKey& prompt, int32_t block_tokens) {
  return HashChain(UnsaltedRoot(prompt), prompt.bytes, static_cast<size_t>(block_tokens) * sizeof(TokenId));
}

size_t EngineBlocks::Depth(uint32_t replica, const std::vector<BlockHash>& chain) const {
  if (replica >= held_.size() || held_[replica].state == EventsState::kMissing) return 0;
  size_t known = 0, unknown = chain.size() + 1;
  while (unknown - known > 1) {
    const size_t middle = known + (unknown - known) / 2;
    (held_[replica].blocks.contains(chain[middle - 1].value) ? known : unknown) = middle;
  }
  return known;
}

}  // namespace kvring::router
