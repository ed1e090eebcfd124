// ResidencyIndex: what a replica holds is added to the tree. Memory and eviction: residency_tree.cc.
#include <algorithm>

#include "common/check.h"
#include "router/fleet/residency_internal.h"

namespace kvring::router {

ResidencyIndex::Incoming::Incoming(const Holding& holding)
    : prompt(*holding.prompt), ends(holding.token_ends), exact(!holding.token_ends.empty()) {
  const size_t whole = prompt.chain.size() * kIndexBlockBytes;
  rest.assign(prompt.bytes.substr(whole));
  rest.append(holding.continuation);
  further = HashChain(prompt.chain.empty() ? prompt.root : prompt.chain.back(), rest, kIndexBlockBytes);
  blocks = prompt.chain.size() + further.size();
  size = whole + rest.size();
}

std::string_view ResidencyIndex::Incoming::block(size_t index) const {
  const size_t whole = prompt.chain.size();
  if (index < whole) return prompt.bytes.substr(index * kIndexBlockBytes, kIndexBlockBytes);
  const size_t from = (index - whole) * kIndexBlockBytes;
  return from >= rest.size() ? std::string_view() : std::string_view(rest).substr(from, kIndexBlockBytes);
}

uint32_t ResidencyIndex::Incoming::MarksBefore(size_t block_index) const {
  const size_t bytes = block_index * kIndexBlockBytes;
  if (bytes == 0) return 0;  // ends at 0 are put at byte 1
  if (!exact) return static_cast<uint32_t>(bytes / kForeignMarkBytes);
  return static_cast<uint32_t>(std::upper_bound(ends.begin(), ends.end(), bytes) - ends.begin());
}

bool ResidencyIndex::Incoming::has_tail_marks() const {
  bool any = false;
  VisitMarks(blocks, [&](uint32_t) { any = true; });
  return any;
}

// As Locate, over prompt and continuation.
void ResidencyIndex::Descend(const Incoming& in, ResidencyPath& path) const {
  Locate(in.prompt, path);
  while (path.blocks >= in.prompt.chain.size() && path.blocks < in.blocks) {
    const uint64_t* slot = FindSlot(in.hash(path.blocks));
    if (slot == nullptr) return;
    const auto node = static_cast<uint32_t>(*slot >> 32);
    if (path.steps.front().node != node) path.steps.insert(path.steps.begin(), {node, 0});
    ++path.steps.front().blocks;
    ++path.blocks;
  }
}

uint32_t ResidencyIndex::Insert(const Holding& holding, uint32_t replica) {
  Incoming in(holding);
  const uint32_t number = ++owner(replica).inserts;
  if (in.blocks == 0 && !in.has_tail_marks()) return number;
  ResidencyPath path;
  Descend(in, path);
  touched_.resize(path.steps.size());
  if (!MakeRoom(in.blocks - path.blocks)) return number;
  Descend(in, path);  // room may have been made on the path itself
  if (path.steps.empty()) {
    const uint32_t root = NewNode(kNone, 0);
    nodes_[root].root = in.prompt.root.value;
    roots_[in.prompt.root.value] = root;
    path.steps.push_back({root, 0});
  }
  const auto [node, blocks] = path.steps.front();
  const uint32_t deepest = FindCopy(nodes_[node], replica);
  const bool more = in.blocks > path.blocks || !Holds(in, node, deepest, blocks);
  // What the replica holds beyond the prompt's end was not used by it, so it keeps its age: divided before
  // the touch.
  const bool ends_inside = deepest != kNone && copies_[deepest].blocks > blocks;
  if (blocks < nodes_[node].hashes.size() && (more || ends_inside)) Split(node, blocks);
  TouchPath(in, path, replica);
  if (more) Attach(in, node, replica);
  NotePromptEnd(in.prompt);
  // Leaves first, so that parents are the more recently used.
  for (auto copy = touched_.rbegin(); copy != touched_.rend(); ++copy) {
    Detach(*copy);
    LinkNewest(*copy);
  }
  const Owner& o = owner(replica);
  if (o.capacity > 0 && o.held > o.capacity) EvictOldest(replica, o.held - o.capacity);
  return number;
}

void ResidencyIndex::TouchPath(const Incoming& in, const ResidencyPath& path, uint32_t replica) {
  touched_.clear();
  for (auto step = path.steps.rbegin(); step != path.steps.rend(); ++step) {
    uint32_t copy = FindCopy(nodes_[step->node], replica);
    if (copy == kNone) {
      copy = AddCopy(step->node, replica);
    } else {
      Detach(copy);
    }
    LinkNewest(copy);
    BringForward(step->node);
    if (copies_[copy].blocks < step->blocks) Resize(copy, step->blocks, false);
    MarkBlocks(in, step->node, step->blocks);
    touched_.push_back(copy);
  }
}

// In all nodes of the insert under way.
void ResidencyIndex::NotePromptEnd(const PromptKey& prompt) {
  for (const uint32_t copy : touched_) {
    Node& node = nodes_[copies_[copy].node];
    const size_t before = node.start * kIndexBlockBytes;
    if (prompt.bytes.size() <= before) continue;
    const size_t most = (node.hashes.size() + 1) * kIndexBlockBytes;
    node.prompt_bytes =
        std::max(node.prompt_bytes, static_cast<uint32_t>(std::min(prompt.bytes.size() - before, most)));
  }
}

// True if the copy already covers the incoming tail (all marks after the last whole block).
bool ResidencyIndex::Holds(const Incoming& in, uint32_t node, uint32_t copy, uint32_t blocks) const {
  uint32_t wanted = 0;
  in.VisitMarks(in.blocks, [&](uint32_t) { ++wanted; });
  if (wanted == 0) return true;
  if (copy == kNone || (copies_[copy].blocks <= blocks && !copies_[copy].tail)) return false;
  uint32_t last = 0;
  return MatchingMarks(nodes_[node], blocks, in.block(in.blocks), kIndexBlockBytes + 1, &last) >= wanted;
}

bool ResidencyIndex::TailMatches(const Incoming& in, const Node& node) const {
  const auto whole = static_cast<uint32_t>(node.hashes.size());
  const std::string_view bytes = in.block(node.start + whole);
  for (auto mark = node.marks.rbegin(); mark != node.marks.rend(); ++mark) {
    if (MarkOffset(*mark) <= whole * kIndexBlockBytes) return true;
    const size_t offset = MarkOffset(*mark) - whole * kIndexBlockBytes;
    if (offset > bytes.size() || !MarkFits(*mark, bytes.substr(0, offset))) return false;
  }
  return true;
}

// The replica alone holds all of it, and it can go on there: conversations grow in place.
bool ResidencyIndex::Extensible(const Incoming& in, const Node& node, uint32_t replica) const {
  if (node.parent == kNone || node.first_child != kNone || node.copies.size() != 1) return false;
  const CopyRef only = node.copies.front();
  return only.replica == replica && copies_[only.copy].blocks == node.hashes.size() &&
         node.hashes.size() < kNodeBlocks && TailMatches(in, node);
}

void ResidencyIndex::Attach(Incoming& in, uint32_t node, uint32_t replica) {
  if (!Extensible(in, nodes_[node], replica)) node = ChildFor(in, node, replica);
  while (true) {
    Append(in, node, replica);
    const size_t reached = nodes_[node].start + nodes_[node].hashes.size();
    if (reached == in.blocks) break;
    node = NewNode(node, static_cast<uint32_t>(reached));
    touched_.push_back(AddCopy(node, replica));
    LinkNewest(touched_.back());
  }
  if (in.has_tail_marks()) MarkTail(in, node);
}

// A child of `node` for what follows it: a tail that this goes on from, or a new one.
uint32_t ResidencyIndex::ChildFor(Incoming& in, uint32_t node, uint32_t replica) {
  ShedTail(node);
  int scanned = 0;
  for (uint32_t child = nodes_[node].first_child; child != kNone && scanned < kChildrenScanned;
       child = nodes_[child].next_sibling, ++scanned) {
    if (!nodes_[child].hashes.empty() || !Extensible(in, nodes_[child], replica)) continue;
    touched_.push_back(nodes_[child].copies.front().copy);
    BringForward(child);
    return child;
  }
  const uint32_t child =
      NewNode(node, nodes_[node].start + static_cast<uint32_t>(nodes_[node].hashes.size()));
  touched_.push_back(AddCopy(child, replica));
  LinkNewest(touched_.back());
  return child;
}

// Blocks up to the node's bound or the end of the text. The node has this one copy.
void ResidencyIndex::Append(Incoming& in, uint32_t node, uint32_t replica) {
  const uint32_t copy = FindCopy(nodes_[node], replica);
  Resize(copy, copies_[copy].blocks, false);
  {
    const Recount recount(*this, node);
    Node& n = nodes_[node];
    const uint32_t end = n.marked_blocks * static_cast<uint32_t>(kIndexBlockBytes);
    while (!n.marks.empty() && MarkOffset(n.marks.back()) > end) n.marks.pop_back();
    const size_t to = std::min<size_t>(in.blocks - n.start, kNodeBlocks);
    if (n.hashes.empty()) n.hashes.reserve(to);
    for (size_t i = n.hashes.size(); i < to; ++i) {
      n.hashes.push_back(in.hash(n.start + i));
      AddSlot(n.hashes.back(), node, static_cast<uint32_t>(i));
    }
  }
  const auto blocks = static_cast<uint32_t>(nodes_[node].hashes.size());
  Resize(copy, blocks, false);
  MarkBlocks(in, node, blocks);
}

// Marks of the node's first `blocks` whole blocks. Reported ends replace guessed marks if they cover the
// whole node.
void ResidencyIndex::MarkBlocks(const Incoming& in, uint32_t node, uint32_t blocks) {
  Node& n = nodes_[node];
  const bool upgrade = in.exact && !n.exact && blocks == n.hashes.size();
  if (!upgrade && (n.exact != in.exact || n.marked_blocks >= blocks)) return;
  for (const CopyRef ref : n.copies) {
    if (copies_[ref.copy].tail) {
      if (!upgrade) return;  // all whole blocks are marked already when there is a tail
      Resize(ref.copy, copies_[ref.copy].blocks, false);
    }
  }
  const Recount recount(*this, node);
  if (upgrade) {
    n.marks.clear();
    n.marked_blocks = 0;
    n.exact = true;
  }
  if (n.marked_blocks == 0) n.marks_before = in.MarksBefore(n.start);
  for (uint32_t i = n.marked_blocks; i < blocks; ++i) {
    const std::string_view bytes = in.block(n.start + i);
    const auto base = i * static_cast<uint32_t>(kIndexBlockBytes);
    in.VisitMarks(n.start + i,
                  [&](uint32_t at) { n.marks.push_back(MakeMark(base + at, bytes.substr(0, at))); });
  }
  n.marked_blocks = blocks;
}

// The partial block after the node's last; the node has this one copy.
void ResidencyIndex::MarkTail(const Incoming& in, uint32_t node) {
  const Node& held = nodes_[node];
  if (held.marked_blocks < held.hashes.size() || (held.exact != in.exact && !held.hashes.empty())) return;
  {
    const Recount recount(*this, node);
    Node& n = nodes_[node];
    if (n.hashes.empty()) {
      n.exact = in.exact;
      n.marks.clear();
      n.marks_before = in.MarksBefore(n.start);
    }
    const std::string_view bytes = in.block(in.blocks);
    const auto base = static_cast<uint32_t>(n.hashes.size() * kIndexBlockBytes);
    in.VisitMarks(in.blocks,
                  [&](uint32_t at) { n.marks.push_back(MakeMark(base + at, bytes.substr(0, at))); });
  }
  const CopyRef only = nodes_[node].copies.front();
  Resize(only.copy, copies_[only.copy].blocks, true);
}

}  // namespace kvring::router
