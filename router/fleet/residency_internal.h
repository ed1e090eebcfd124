// Private parts of ResidencyIndex that its source files share: one insert's content, and the accounting of
// node memory.
#pragma once

#include <algorithm>
#include <string>

#include "router/fleet/residency_index.h"

namespace kvring::router {

/// A mark: where cached tokens can end. Offset from the node's start (1 … 129 · 256), 16 bits of hash of the
/// bytes from the start of its index block to it.
constexpr uint32_t MarkOffset(uint32_t mark) { return mark >> 16; }
inline uint32_t MakeMark(uint32_t offset, std::string_view bytes_of_block_so_far) {
  return offset << 16 | static_cast<uint32_t>(HashName(bytes_of_block_so_far) >> 48);
}
inline bool MarkFits(uint32_t mark, std::string_view bytes_of_block_so_far) {
  return (mark & 0xffff) == HashName(bytes_of_block_so_far) >> 48;
}

template <class T>
int64_t HeapBytes(const std::vector<T>& v) {
  constexpr int64_t kMallocOverhead = 16;
  return v.capacity() == 0 ? 0 : static_cast<int64_t>(v.capacity() * sizeof(T)) + kMallocOverhead;
}

class ResidencyIndex::Recount {
 public:
  Recount(ResidencyIndex& index, uint32_t node) : index_(index), node_(index.nodes_[node]) {
    index_.vector_bytes_ -= Bytes();
  }
  ~Recount() { index_.vector_bytes_ += Bytes(); }
  Recount(const Recount&) = delete;
  Recount& operator=(const Recount&) = delete;

 private:
  int64_t Bytes() const { return HeapBytes(node_.hashes) + HeapBytes(node_.marks) + HeapBytes(node_.copies); }
  ResidencyIndex& index_;
  Node& node_;
};

/// Prompt and continuation as one text: chain, bytes of any block, marks. Blocks of the prompt are read in
/// place; from its last partial block on the text is joined in `rest`.
struct ResidencyIndex::Incoming {
  explicit Incoming(const Holding& holding);

  uint64_t hash(size_t block) const {
    return block < prompt.chain.size() ? prompt.chain[block].value
                                       : further[block - prompt.chain.size()].value;
  }
  /// At most 256 bytes from this block's start.
  std::string_view block(size_t index) const;
  /// Marks that end inside this block, by reported ends or every 64 bytes; offsets relative to the block,
  /// ascending.
  template <class Visit>
  void VisitMarks(size_t block_index, Visit&& visit) const;
  uint32_t MarksBefore(size_t block_index) const;
  bool has_tail_marks() const;

  const PromptKey& prompt;
  std::span<const uint32_t> ends;
  bool exact;
  std::string rest;
  std::vector<BlockHash> further;
  size_t blocks;
  size_t size;  // bytes
};

template <class Visit>
void ResidencyIndex::Incoming::VisitMarks(size_t block_index, Visit&& visit) const {
  const size_t from = block_index * kIndexBlockBytes, to = std::min(from + kIndexBlockBytes, size);
  if (!exact) {
    for (size_t at = kForeignMarkBytes; from + at <= to; at += kForeignMarkBytes)
      visit(static_cast<uint32_t>(at));
    return;
  }
  // An end at 0 (template tokens before any canonical byte) depends on how the prompt begins: it is put at
  // byte 1.
  const uint32_t first = block_index == 0 ? 0 : static_cast<uint32_t>(from + 1);
  for (auto it = std::lower_bound(ends.begin(), ends.end(), first); it != ends.end() && *it <= to; ++it) {
    visit(std::max<uint32_t>(*it, 1) - static_cast<uint32_t>(from));
  }
}

}  // namespace kvring::router
