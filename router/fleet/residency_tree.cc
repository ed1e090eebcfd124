// ResidencyIndex: its memory: hash table, nodes, copies, eviction. Queries: residency_index.cc; inserts:
// residency_insert.cc.
#include <algorithm>
#include <bit>

#include "common/check.h"
#include "router/fleet/residency_internal.h"

namespace kvring::router {
namespace {

// Of the bound: 8 for the slot, the rest for the hash, four marks and a share of a node that the slot leads
// to.
constexpr int64_t kBytesPerSlot = 48;

constexpr uint64_t SlotOf(uint64_t hash, uint32_t node, uint32_t position) {
  return uint64_t{node} << 32 | (hash >> 40) << 8 | position;
}
constexpr uint32_t NodeIn(uint64_t slot) { return static_cast<uint32_t>(slot >> 32); }
constexpr uint32_t PositionIn(uint64_t slot) { return static_cast<uint32_t>(slot & 0xff); }
constexpr bool SameTag(uint64_t slot, uint64_t hash) { return ((slot >> 8) & 0xffffff) == hash >> 40; }

}  // namespace

ResidencyIndex::ResidencyIndex(int64_t max_bytes) : max_bytes_(max_bytes) {
  const uint64_t slots =
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(max_bytes / kBytesPerSlot, 64)));
  slot_mask_ = slots - 1;
  // calloc: pages that are never used cost no memory.
  table_.reset(static_cast<uint64_t*>(std::calloc(slots, sizeof(uint64_t))));
  KVRING_CHECK(table_ != nullptr);
  nodes_.emplace_back();  // node 0 is unused, so that an empty slot is 0
}

ResidencyIndex::~ResidencyIndex() = default;

int64_t ResidencyIndex::memory_bytes() const {
  constexpr int64_t kRootBytes = 24;
  return static_cast<int64_t>((slot_mask_ + 1) * sizeof(uint64_t) + nodes_.size() * sizeof(Node) +
                              copies_.size() * sizeof(Copy)) +
         static_cast<int64_t>(roots_.size()) * kRootBytes + vector_bytes_;
}

// ---- table ----

uint64_t ResidencyIndex::HashIn(uint64_t slot) const { return nodes_[NodeIn(slot)].hashes[PositionIn(slot)]; }

uint64_t* ResidencyIndex::FindSlot(uint64_t hash) const {
  for (uint64_t at = hash & slot_mask_; table_[at] != 0; at = (at + 1) & slot_mask_) {
    if (SameTag(table_[at], hash) && HashIn(table_[at]) == hash) return &table_[at];
  }
  return nullptr;
}

const uint64_t* ResidencyIndex::FindLikely(uint64_t hash) const {
  for (uint64_t at = hash & slot_mask_; table_[at] != 0; at = (at + 1) & slot_mask_) {
    if (SameTag(table_[at], hash)) return &table_[at];
  }
  return nullptr;
}

void ResidencyIndex::AddSlot(uint64_t hash, uint32_t node, uint32_t position) {
  uint64_t at = hash & slot_mask_;
  while (table_[at] != 0) at = (at + 1) & slot_mask_;
  table_[at] = SlotOf(hash, node, position);
  ++used_slots_;
}

// Linear probing without tombstones: later entries of the run move back over the hole (Knuth 6.4, algorithm
// R).
void ResidencyIndex::RemoveSlot(uint64_t hash) {
  uint64_t* const found = FindSlot(hash);
  KVRING_CHECK(found != nullptr);
  uint64_t hole = static_cast<uint64_t>(found - table_.get());
  --used_slots_;
  for (uint64_t at = (hole + 1) & slot_mask_; table_[at] != 0; at = (at + 1) & slot_mask_) {
    const uint64_t home = HashIn(table_[at]) & slot_mask_;
    if (((at - home) & slot_mask_) < ((at - hole) & slot_mask_)) continue;
    table_[hole] = table_[at];
    hole = at;
  }
  table_[hole] = 0;
}

// ---- nodes ----

uint32_t ResidencyIndex::NewNode(uint32_t parent, uint32_t start) {
  uint32_t node = static_cast<uint32_t>(nodes_.size());
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    node = free_nodes_.back();
    free_nodes_.pop_back();
  }
  nodes_[node].start = start;
  if (parent != kNone) Link(node, parent);
  return node;
}

void ResidencyIndex::FreeNode(uint32_t node) {
  Node& n = nodes_[node];
  KVRING_CHECK(n.copies.empty() && n.hashes.empty() && n.first_child == kNone);
  if (n.parent == kNone) {
    roots_.erase(n.root);
  } else {
    Unlink(node);
  }
  const Recount recount(*this, node);
  n = Node{};
  free_nodes_.push_back(node);
}

void ResidencyIndex::Link(uint32_t node, uint32_t parent) {
  Node& n = nodes_[node];
  Node& p = nodes_[parent];
  n.parent = parent;
  n.previous_sibling = kNone;
  n.next_sibling = p.first_child;
  if (p.first_child != kNone) nodes_[p.first_child].previous_sibling = node;
  p.first_child = node;
}

void ResidencyIndex::Unlink(uint32_t node) {
  const Node& n = nodes_[node];
  if (n.next_sibling != kNone) nodes_[n.next_sibling].previous_sibling = n.previous_sibling;
  (n.previous_sibling != kNone ? nodes_[n.previous_sibling].next_sibling : nodes_[n.parent].first_child) =
      n.next_sibling;
}

// To the front of its siblings: only the most recently used ones are looked through.
void ResidencyIndex::BringForward(uint32_t node) {
  if (nodes_[node].parent == kNone || nodes_[node].previous_sibling == kNone) return;
  Unlink(node);
  Link(node, nodes_[node].parent);
}

// Blocks from `blocks` on, the tail and all children move to a new only child; copies that reach further are
// divided.
void ResidencyIndex::Split(uint32_t upper, uint32_t blocks) {
  const uint32_t children = nodes_[upper].first_child;
  nodes_[upper].first_child = kNone;
  const uint32_t lower = NewNode(upper, nodes_[upper].start + blocks);
  nodes_[lower].first_child = children;
  for (uint32_t child = children; child != kNone; child = nodes_[child].next_sibling)
    nodes_[child].parent = lower;
  SplitContent(upper, lower, blocks);
  for (const CopyRef ref : nodes_[upper].copies) {
    Copy& held = copies_[ref.copy];
    const Copy before = held;
    held.blocks = std::min(held.blocks, blocks);
    held.tail = false;
    if (before.blocks <= blocks && !before.tail) continue;
    const uint32_t below = AddCopy(lower, ref.replica);
    copies_[below].blocks = before.blocks - blocks;
    copies_[below].tail = before.tail;
    copies_[below].added_by = before.added_by;
    LinkBehind(below, ref.copy);
  }
}

void ResidencyIndex::SplitContent(uint32_t upper, uint32_t lower, uint32_t blocks) {
  const Recount recount_upper(*this, upper), recount_lower(*this, lower);
  Node& u = nodes_[upper];
  Node& l = nodes_[lower];
  l.hashes.assign(u.hashes.begin() + blocks, u.hashes.end());
  for (uint32_t i = 0; i < l.hashes.size(); ++i) *FindSlot(l.hashes[i]) = SlotOf(l.hashes[i], lower, i);
  u.hashes.resize(blocks);

  const uint32_t border = blocks * static_cast<uint32_t>(kIndexBlockBytes);
  const auto first =
      std::find_if(u.marks.begin(), u.marks.end(), [&](uint32_t m) { return MarkOffset(m) > border; });
  for (auto it = first; it != u.marks.end(); ++it) l.marks.push_back(*it - (border << 16));
  u.marks.erase(first, u.marks.end());
  l.exact = u.exact;
  l.prompt_bytes = u.prompt_bytes - std::min(u.prompt_bytes, border);
  u.prompt_bytes = std::min(u.prompt_bytes, border);
  l.marks_before = u.marks_before + static_cast<uint32_t>(u.marks.size());
  l.marked_blocks = u.marked_blocks - std::min(u.marked_blocks, blocks);
  u.marked_blocks = std::min(u.marked_blocks, blocks);
}

// A node that gets children keeps no tail: its tail becomes a child of its own.
void ResidencyIndex::ShedTail(uint32_t node) {
  if (TailBytes(nodes_[node]) > 0) Split(node, static_cast<uint32_t>(nodes_[node].hashes.size()));
}

// Gives back what no copy holds any more.
void ResidencyIndex::Trim(uint32_t node) {
  {
    const Recount recount(*this, node);
    Node& n = nodes_[node];
    uint32_t held = 0;
    bool tail = false;
    for (const CopyRef ref : n.copies) {
      held = std::max(held, copies_[ref.copy].blocks);
      tail |= copies_[ref.copy].tail;
    }
    if (tail) return;
    while (n.hashes.size() > held) {
      RemoveSlot(n.hashes.back());
      n.hashes.pop_back();
    }
    const uint32_t end = held * static_cast<uint32_t>(kIndexBlockBytes);
    while (!n.marks.empty() && MarkOffset(n.marks.back()) > end) n.marks.pop_back();
    n.marked_blocks = std::min(n.marked_blocks, held);
    n.prompt_bytes = std::min(n.prompt_bytes, end);
    n.hashes.shrink_to_fit();
    n.marks.shrink_to_fit();
    if (!n.copies.empty()) return;
  }
  FreeNode(node);
}

// ---- copies ----

ResidencyIndex::Owner& ResidencyIndex::owner(uint32_t replica) {
  if (replica >= owners_.size()) owners_.resize(replica + 1);
  return owners_[replica];
}

uint32_t ResidencyIndex::FindCopy(const Node& node, uint32_t replica) const {
  const auto it = std::lower_bound(node.copies.begin(), node.copies.end(), replica,
                                   [](CopyRef ref, uint32_t r) { return ref.replica < r; });
  return it != node.copies.end() && it->replica == replica ? it->copy : kNone;
}

/// Not in its owner's list yet: LinkNewest or LinkBehind follows. Holds nothing yet.
uint32_t ResidencyIndex::AddCopy(uint32_t node, uint32_t replica) {
  uint32_t copy = static_cast<uint32_t>(copies_.size());
  if (free_copies_.empty()) {
    copies_.emplace_back();
  } else {
    copy = free_copies_.back();
    free_copies_.pop_back();
  }
  copies_[copy] = {.node = node, .replica = replica};
  const Recount recount(*this, node);
  std::vector<CopyRef>& refs = nodes_[node].copies;
  refs.insert(std::lower_bound(refs.begin(), refs.end(), replica,
                               [](CopyRef ref, uint32_t r) { return ref.replica < r; }),
              {replica, copy});
  return copy;
}

void ResidencyIndex::RemoveCopy(uint32_t copy) {
  Resize(copy, 0, false);
  Detach(copy);
  const uint32_t node = copies_[copy].node;
  {
    const Recount recount(*this, node);
    std::erase_if(nodes_[node].copies, [&](CopyRef ref) { return ref.copy == copy; });
  }
  copies_[copy] = Copy{};
  free_copies_.push_back(copy);
}

int64_t ResidencyIndex::TailBytes(const Node& node) const {
  const auto whole = static_cast<int64_t>(node.hashes.size() * kIndexBlockBytes);
  return node.marks.empty() ? 0 : std::max<int64_t>(MarkOffset(node.marks.back()) - whole, 0);
}

int64_t ResidencyIndex::CopyBytes(const Copy& copy) const {
  return copy.blocks * static_cast<int64_t>(kIndexBlockBytes) +
         (copy.tail ? TailBytes(nodes_[copy.node]) : 0);
}

void ResidencyIndex::Resize(uint32_t copy, uint32_t blocks, bool tail) {
  Copy& c = copies_[copy];
  const int64_t before = CopyBytes(c);
  c.blocks = blocks;
  c.tail = tail;
  const int64_t change = CopyBytes(c) - before;
  if (change > 0) c.added_by = owners_[c.replica].inserts;
  owners_[c.replica].held += change;
  total_held_ += change;
}

void ResidencyIndex::LinkNewest(uint32_t copy) {
  Copy& c = copies_[copy];
  Owner& o = owner(c.replica);
  c.newer = kNone;
  c.older = o.newest;
  (o.newest != kNone ? copies_[o.newest].newer : o.oldest) = copy;
  o.newest = copy;
}

void ResidencyIndex::LinkBehind(uint32_t copy, uint32_t newer) {
  Copy& c = copies_[copy];
  c.newer = newer;
  c.older = copies_[newer].older;
  (c.older != kNone ? copies_[c.older].newer : owners_[c.replica].oldest) = copy;
  copies_[newer].older = copy;
}

void ResidencyIndex::Detach(uint32_t copy) {
  const Copy& c = copies_[copy];
  Owner& o = owners_[c.replica];
  (c.newer != kNone ? copies_[c.newer].older : o.newest) = c.older;
  (c.older != kNone ? copies_[c.older].newer : o.oldest) = c.newer;
}

// ---- eviction ----

// At least `bytes` from the replica's oldest copies: tails first, then blocks from the end.
void ResidencyIndex::EvictOldest(uint32_t replica, int64_t bytes) {
  const int64_t goal = owners_[replica].held - bytes;
  while (owners_[replica].oldest != kNone && owners_[replica].held > std::max<int64_t>(goal, 0)) {
    const uint32_t copy = owners_[replica].oldest;
    const uint32_t node = copies_[copy].node;
    if (copies_[copy].tail) Resize(copy, copies_[copy].blocks, false);
    const int64_t excess = std::max<int64_t>(owners_[replica].held - std::max<int64_t>(goal, 0), 0);
    const auto blocks = static_cast<uint32_t>((excess + kIndexBlockBytes - 1) / kIndexBlockBytes);
    const uint32_t left = copies_[copy].blocks - std::min(copies_[copy].blocks, blocks);
    if (left > 0) {
      Resize(copy, left, false);
    } else {
      RemoveCopy(copy);
    }
    Trim(node);
  }
  // Nodes left without bytes (roots) go as well, or they could pile up.
  while (owners_[replica].oldest != kNone && CopyBytes(copies_[owners_[replica].oldest]) == 0) {
    const uint32_t copy = owners_[replica].oldest;
    const uint32_t node = copies_[copy].node;
    RemoveCopy(copy);
    Trim(node);
  }
}

// Evicts until an insert of so many new blocks fits both bounds; false if it cannot.
bool ResidencyIndex::MakeRoom(size_t blocks) {
  constexpr int64_t kMostPerBlock = 2 * (8 + 4 * 8);  // vectors grow by doubling; up to 8 marks
  constexpr int64_t kMostPerInsert = 8 * (sizeof(Node) + sizeof(Copy) + 64) + 4096;
  constexpr int64_t kShare = 64 * kIndexBlockBytes;
  const int64_t need = static_cast<int64_t>(blocks) * kMostPerBlock + kMostPerInsert;
  const size_t most_slots = (slot_mask_ + 1) / 4 * 3;
  // Freed nodes and copies are kept for reuse: their pools may take 3/8 of the bound, or they could starve
  // the rest.
  const size_t most_nodes = static_cast<size_t>(max_bytes_) / 4 / sizeof(Node);
  const size_t most_copies = static_cast<size_t>(max_bytes_) / 8 / sizeof(Copy);
  const size_t new_nodes = blocks / kNodeBlocks + 4;
  while (memory_bytes() + need > max_bytes_ || used_slots_ + blocks > most_slots ||
         nodes_.size() - free_nodes_.size() + new_nodes > most_nodes ||
         copies_.size() - free_copies_.size() + new_nodes + touched_.size() > most_copies) {
    if (total_held_ == 0) return false;
    const int64_t mean = total_held_ / static_cast<int64_t>(owners_.size());
    do {
      turn_ = (turn_ + 1) % static_cast<uint32_t>(owners_.size());
    } while (owners_[turn_].held < std::max<int64_t>(mean, 1));
    EvictOldest(turn_, kShare);
  }
  return true;
}

void ResidencyIndex::SetCapacity(uint32_t replica, int64_t bytes) { owner(replica).capacity = bytes; }

void ResidencyIndex::Drop(uint32_t replica) {
  if (replica >= owners_.size()) return;
  while (owners_[replica].oldest != kNone) {
    const uint32_t copy = owners_[replica].oldest;
    const uint32_t node = copies_[copy].node;
    RemoveCopy(copy);
    Trim(node);
  }
}

int64_t ResidencyIndex::held_bytes(uint32_t replica) const {
  return replica < owners_.size() ? owners_[replica].held : 0;
}

}  // namespace kvring::router
