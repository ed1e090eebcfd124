#include "replica/kv/host_tier.h"

#include <utility>

#include "common/check.h"

namespace kvring::replica {

HostTier::HostTier(const HostTierOptions& options) : store_(options.store), slots_(options.slots) {
  for (const auto& [slot, block] : options.restored) {
    KVRING_CHECK(slot >= 0 && slot < options.slots && !slots_[slot].used);
    if (!index_.try_emplace(block.hash, slot).second) continue;  // an older copy of the same
    slots_[slot].block = block;
    Link(slot);
  }
  for (int32_t slot = options.slots - 1; slot >= 0; --slot) {
    if (!slots_[slot].used) empty_.push_back(slot);
  }
}

int32_t HostTier::Find(const StoredBlock& block) const {
  const auto entry = index_.find(block.hash);
  return entry != index_.end() && slots_[entry->second].block == block ? entry->second : kNone;
}

void HostTier::Touch(int32_t slot) {
  Unlink(slot);
  Link(slot);
}

std::optional<StoredBlock> HostTier::Put(BlockId block, const StoredBlock& what) {
  if (const auto entry = index_.find(what.hash); entry != index_.end()) {
    if (slots_[entry->second].block == what) {
      Touch(entry->second);
      return std::nullopt;
    }
    Drop(entry->second);  // another block of the same hash: it could never be found beside this one
  }
  std::optional<StoredBlock> given_up;
  const int32_t slot = EmptySlot(given_up);
  if (store_ != nullptr) store_->Save(block, slot, what);
  slots_[slot].block = what;
  index_[what.hash] = slot;
  Link(slot);
  return given_up;
}

int32_t HostTier::EmptySlot(std::optional<StoredBlock>& given_up) {
  if (!empty_.empty()) {
    const int32_t slot = empty_.back();
    empty_.pop_back();
    return slot;
  }
  const int32_t slot = oldest_;
  given_up = std::move(slots_[slot].block);
  index_.erase(given_up->hash);
  Unlink(slot);
  return slot;
}

bool HostTier::Get(int32_t slot, BlockId block) {
  if (store_ == nullptr || store_->Load(slot, slots_[slot].block, block)) return true;
  Drop(slot);
  return false;
}

void HostTier::Clear() {
  while (oldest_ != kNone) Drop(oldest_);
}

void HostTier::Drop(int32_t slot) {
  index_.erase(slots_[slot].block.hash);
  Unlink(slot);
  empty_.push_back(slot);
  if (store_ != nullptr) store_->Forget(slot);
}

void HostTier::Link(int32_t slot) {
  slots_[slot].used = true;
  slots_[slot].newer = kNone;
  slots_[slot].older = newest_;
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
}

void HostTier::Unlink(int32_t slot) {
  const Slot& s = slots_[slot];
  (s.newer == kNone ? newest_ : slots_[s.newer].older) = s.older;
  (s.older == kNone ? oldest_ : slots_[s.older].newer) = s.newer;
  slots_[slot].used = false;
}

std::vector<const StoredBlock*> HostTier::Contents() const {
  std::vector<const StoredBlock*> contents;
  for (const Slot& slot : slots_) {
    if (slot.used) contents.push_back(&slot.block);
  }
  return contents;
}

const char* HostTier::CheckIntegrity() const {
  size_t linked = 0;
  for (int32_t slot = newest_, newer = kNone; slot != kNone; newer = slot, slot = slots_[slot].older) {
    if (slots_[slot].newer != newer || !slots_[slot].used) return "host tier: a link that leads elsewhere";
    const auto entry = index_.find(slots_[slot].block.hash);
    if (entry == index_.end() || entry->second != slot) return "host tier: a slot that is not in the index";
    if (++linked > slots_.size()) return "host tier: a ring";
  }
  if (linked != index_.size()) return "host tier: the index holds more than the list";
  return linked + empty_.size() == slots_.size() ? "" : "host tier: a slot is lost";
}

}  // namespace kvring::replica
