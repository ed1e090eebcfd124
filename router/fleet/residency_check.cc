// ResidencyIndex::CheckIntegrity: a full recount of what the other files keep up step by step.
#include "common/check.h"
#include "router/fleet/residency_internal.h"

namespace kvring::router {

void ResidencyIndex::CheckNode(uint32_t index) const {
  const Node& node = nodes_[index];
  KVRING_CHECK(!node.copies.empty());
  uint32_t most = 0;
  bool tail = false;
  for (size_t i = 0; i < node.copies.size(); ++i) {
    const CopyRef ref = node.copies[i];
    const Copy& copy = copies_[ref.copy];
    KVRING_CHECK(copy.node == index && copy.replica == ref.replica);
    KVRING_CHECK(i == 0 || node.copies[i - 1].replica < ref.replica);
    KVRING_CHECK(copy.blocks <= node.hashes.size());
    KVRING_CHECK(!copy.tail || (copy.blocks == node.hashes.size() && TailBytes(node) > 0));
    most = std::max(most, copy.blocks);
    tail |= copy.tail;
    if (node.parent == kNone) continue;
    const uint32_t above = FindCopy(nodes_[node.parent], ref.replica);  // prefix closure
    KVRING_CHECK(above != kNone && copies_[above].blocks == nodes_[node.parent].hashes.size());
  }
  KVRING_CHECK(most == node.hashes.size() && tail == (TailBytes(node) > 0));
  KVRING_CHECK(node.first_child == kNone || !tail);
  KVRING_CHECK(node.marked_blocks <= node.hashes.size());
  for (size_t i = 1; i < node.marks.size(); ++i)
    KVRING_CHECK(MarkOffset(node.marks[i - 1]) <= MarkOffset(node.marks[i]));
  for (uint32_t i = 0; i < node.hashes.size(); ++i) {
    const uint64_t* slot = FindSlot(node.hashes[i]);
    KVRING_CHECK(slot != nullptr && *slot >> 32 == index && (*slot & 0xff) == i);
  }
  for (uint32_t child = node.first_child; child != kNone; child = nodes_[child].next_sibling) {
    KVRING_CHECK(nodes_[child].parent == index);
    KVRING_CHECK(nodes_[child].start == node.start + node.hashes.size());
  }
}

void ResidencyIndex::CheckIntegrity() const {
  size_t blocks = 0, copies = 0;
  int64_t heap = 0, held = 0;
  for (uint32_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    heap += HeapBytes(node.hashes) + HeapBytes(node.marks) + HeapBytes(node.copies);
    if (node.copies.empty()) continue;  // free
    CheckNode(i);
    blocks += node.hashes.size();
    copies += node.copies.size();
  }
  KVRING_CHECK(blocks == used_slots_ && heap == vector_bytes_);
  KVRING_CHECK(copies == copies_.size() - free_copies_.size());
  for (const Owner& owner : owners_) {
    int64_t sum = 0;
    uint32_t newer = kNone;
    for (uint32_t copy = owner.newest; copy != kNone; newer = copy, copy = copies_[copy].older) {
      KVRING_CHECK(copies_[copy].newer == newer);
      sum += CopyBytes(copies_[copy]);
      --copies;
    }
    KVRING_CHECK(owner.oldest == newer && sum == owner.held);
    held += sum;
  }
  KVRING_CHECK(copies == 0 && held == total_held_);
}

}  // namespace kvring::router
