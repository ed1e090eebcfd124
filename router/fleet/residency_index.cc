#include "router/fleet/residency_index.h"

#include <algorithm>

#include "common/canonical_prompt.h"
#include "router/fleet/residency_internal.h"

namespace kvring::router {
namespace {

// A chat prompt goes on with this at the engine (generation prompt): block ends inside it belong to the
// prompt.
constexpr std::string_view kAnswerStart = "assistant\x1f";

bool IsChat(const PromptKey& prompt) {
  return prompt.unit == PromptUnit::kBytes && !prompt.bytes.empty() &&
         prompt.bytes.back() == CanonicalPrompt::kEndOfRecord;
}

// The bytes that follow `from`, at most one index block, answer start included.
std::string_view BytesFrom(const PromptKey& prompt, size_t from, std::string& buffer) {
  const std::string_view rest = prompt.bytes.substr(std::min(from, prompt.bytes.size()));
  if (rest.size() >= kIndexBlockBytes || !IsChat(prompt)) return rest.substr(0, kIndexBlockBytes);
  buffer.assign(rest);
  buffer.append(kAnswerStart);
  return std::string_view(buffer).substr(0, kIndexBlockBytes);
}

}  // namespace

// Prefix closure makes "is block k known" monotone in k. The search trusts the table's tags; its end is
// verified, and in the rare case that a tag misled it, it is done again with full hashes.
template <class Find>
size_t ResidencyIndex::DeepestKnown(const PromptKey& prompt, Find&& find, uint64_t& deepest) const {
  size_t known = 0, unknown = prompt.chain.size() + 1;
  while (unknown - known > 1) {
    const size_t middle = known + (unknown - known) / 2;
    if (const uint64_t* slot = find(prompt.chain[middle - 1].value)) {
      known = middle;
      deepest = *slot;
    } else {
      unknown = middle;
    }
  }
  return known;
}

void ResidencyIndex::Locate(const PromptKey& prompt, ResidencyPath& path) const {
  path.steps.clear();
  path.blocks = 0;
  uint64_t deepest = 0;
  size_t known = DeepestKnown(
      prompt, [this](uint64_t hash) { return FindLikely(hash); }, deepest);
  if (known > 0 && HashIn(deepest) != prompt.chain[known - 1].value) {
    known = DeepestKnown(
        prompt, [this](uint64_t hash) { return FindSlot(hash); }, deepest);
  }
  uint32_t node = kNone;
  if (known > 0) {
    node = static_cast<uint32_t>(deepest >> 32);
  } else if (const auto it = roots_.find(prompt.root.value); it != roots_.end()) {
    node = it->second;
  }
  if (node == kNone) return;
  path.blocks = static_cast<uint32_t>(known);
  path.steps.push_back({node, path.blocks - nodes_[node].start});
  for (node = nodes_[node].parent; node != kNone; node = nodes_[node].parent) {
    path.steps.push_back({node, static_cast<uint32_t>(nodes_[node].hashes.size())});
  }
}

bool ResidencyIndex::Continues(const ResidencyPath& path, const PromptKey& prompt, uint32_t slack) const {
  if (path.blocks == 0) return false;
  const ResidencyPath::Step deepest = path.steps.front();
  const Node& node = nodes_[deepest.node];
  const auto ends_within = [&](uint32_t blocks) {
    return node.prompt_bytes < (deepest.blocks + 1 + blocks) * kIndexBlockBytes;
  };
  const bool nothing_follows = node.first_child == kNone || nodes_[node.first_child].prompt_bytes == 0;
  if (deepest.blocks == node.hashes.size()) return nothing_follows;
  return path.blocks == prompt.chain.size() || ends_within(0) || (nothing_follows && ends_within(slack));
}

uint32_t ResidencyIndex::DepthOf(const ResidencyPath& path, uint32_t replica) const {
  for (const ResidencyPath::Step step : path.steps) {
    const Node& node = nodes_[step.node];
    const uint32_t copy = FindCopy(node, replica);
    if (copy != kNone) return node.start + std::min(step.blocks, copies_[copy].blocks);
  }
  return 0;
}

uint32_t ResidencyIndex::AddedBy(const ResidencyPath& path, uint32_t replica) const {
  for (const ResidencyPath::Step step : path.steps) {
    const uint32_t copy = FindCopy(nodes_[step.node], replica);
    if (copy != kNone) return copies_[copy].added_by;
  }
  return 0;
}

void ResidencyIndex::Holders(const ResidencyPath& path, size_t limit, std::vector<Depth>& out) {
  out.clear();
  if (seen_.size() < owners_.size()) seen_.resize(owners_.size());
  ++seen_generation_;
  for (const ResidencyPath::Step step : path.steps) {
    const Node& node = nodes_[step.node];
    for (const CopyRef ref : node.copies) {
      if (out.size() >= limit) return;
      if (seen_[ref.replica] == seen_generation_) continue;
      seen_[ref.replica] = seen_generation_;
      const uint32_t blocks = node.start + std::min(step.blocks, copies_[ref.copy].blocks);
      if (blocks > 0) out.push_back({ref.replica, blocks});
    }
  }
}

// How many of the node's marks inside its block `block` fit `bytes` (which begin at that block), before
// offset `limit`.
uint32_t ResidencyIndex::MatchingMarks(const Node& node, uint32_t block, std::string_view bytes,
                                       int64_t limit, uint32_t* last) const {
  const auto from = block * static_cast<uint32_t>(kIndexBlockBytes);
  uint32_t count = 0;
  auto it = std::upper_bound(node.marks.begin(), node.marks.end(), from << 16 | 0xffff);
  for (; it != node.marks.end(); ++it) {
    const uint32_t offset = MarkOffset(*it) - from;
    if (offset > bytes.size() || offset >= limit || !MarkFits(*it, bytes.substr(0, offset))) break;
    ++count;
    *last = offset;
  }
  return count;
}

Residency ResidencyIndex::Resolve(const ResidencyPath& path, const PromptKey& prompt,
                                  uint32_t replica) const {
  for (const ResidencyPath::Step step : path.steps) {
    const Node& node = nodes_[step.node];
    const uint32_t index = FindCopy(node, replica);
    if (index == kNone) continue;
    const Copy& copy = copies_[index];
    const uint32_t blocks = std::min(step.blocks, copy.blocks);
    const size_t whole = (node.start + blocks) * kIndexBlockBytes;
    const auto end = static_cast<int64_t>(prompt.bytes.size() + (IsChat(prompt) ? kAnswerStart.size() : 0));

    const auto border = blocks * static_cast<uint32_t>(kIndexBlockBytes);
    const auto upto = std::upper_bound(node.marks.begin(), node.marks.end(), border << 16 | 0xffff);
    const auto in_node = upto - node.marks.begin();
    // The engine computes at least the last prompt token anew, so a block that would hold it is not reused.
    const bool holds_last =
        static_cast<int64_t>(whole) == end && in_node > 0 && MarkOffset(*(upto - 1)) == border;
    Residency found{static_cast<int64_t>(whole), node.marks_before + in_node - (holds_last ? 1 : 0),
                    node.exact && node.marked_blocks >= blocks};

    std::string buffer;
    const std::string_view bytes = BytesFrom(prompt, whole, buffer);
    const int64_t limit = end - static_cast<int64_t>(whole);
    uint32_t best = 0, last = 0;
    if (blocks == step.blocks && (copy.blocks > blocks || copy.tail)) {
      best = MatchingMarks(node, blocks, bytes, limit, &last);
    }
    int scanned = 0;
    const bool at_end = blocks == node.hashes.size();
    for (uint32_t child = at_end ? node.first_child : kNone; child != kNone && scanned < kChildrenScanned;
         child = nodes_[child].next_sibling, ++scanned) {
      const uint32_t held = FindCopy(nodes_[child], replica);
      if (held == kNone || (copies_[held].blocks == 0 && !copies_[held].tail)) continue;
      uint32_t child_last = 0;
      const uint32_t count = MatchingMarks(nodes_[child], 0, bytes, limit, &child_last);
      if (count <= best) continue;
      best = count;
      last = child_last;
      if (blocks == 0 && node.hashes.empty()) found.exact = nodes_[child].exact;
    }
    found.bytes += last;
    found.token_blocks += best;
    return found;
  }
  return {};
}

}  // namespace kvring::router
