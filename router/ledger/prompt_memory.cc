#include "router/ledger/prompt_memory.h"

#include <algorithm>
#include <utility>

#include "router/ledger/content_chunks.h"
#include "router/ledger/matched_runs.h"

namespace kvring::router {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kMaxChunksAsked = 4096;
constexpr size_t kMaxSources = 2;

std::vector<BlockHash> Chain(std::string_view prompt) {
  return HashChain(ChainRoot({}), prompt, kBlockBytes);
}

void EraseOwn(absl::flat_hash_map<uint64_t, uint64_t>& map, uint64_t key, uint64_t id) {
  const auto found = map.find(key);
  if (found != map.end() && found->second == id) map.erase(found);
}

// Whether x explains the prompt better: by much more of it; of like ones the one that parts later, which is
// of the same kind as the prompt.
bool Better(const std::optional<Divergence>& x, const std::optional<Divergence>& y, size_t prompt_bytes) {
  if (!x || !y) return x.has_value();
  const size_t like = prompt_bytes / 16;
  if (x->what_if_bytes > y->what_if_bytes + like) return true;
  return x->what_if_bytes + like >= y->what_if_bytes && x->offset > y->offset;
}

}  // namespace

PromptMemory::PromptMemory(size_t max_bytes) : max_bytes_(max_bytes) {}

const std::string* PromptMemory::TextOf(Id id) const {
  if (kept_.empty() || id < kept_.front().id) return nullptr;
  const std::string& text = kept_[id - kept_.front().id].text;
  return text.empty() ? nullptr : &text;
}

// Known blocks are prefix-closed as long as their holders live: the deepest known one is looked for from the
// front, and the first gap ends it.
std::optional<PromptMemory::Id> PromptMemory::DeepestHolder(const std::vector<BlockHash>& chain) const {
  std::optional<Id> holder;
  for (const BlockHash block : chain) {
    const auto found = by_block_.find(block.value);
    if (found == by_block_.end()) break;
    holder = found->second;
  }
  return holder;
}

// Those that hold most bytes of the prompt's chunks from `begin` on, best first; of equals the later one.
std::vector<PromptMemory::Id> PromptMemory::LikelySources(std::string_view prompt, size_t begin) const {
  absl::flat_hash_map<Id, size_t> votes;
  std::vector<Id> voted;
  for (const ContentChunk& chunk : ContentChunks(prompt, begin, kMaxChunksAsked)) {
    const auto found = by_chunk_.find(chunk.hash);
    if (found == by_chunk_.end()) continue;
    size_t& bytes = votes[found->second];
    if (bytes == 0) voted.push_back(found->second);
    bytes += chunk.length;
  }
  std::ranges::sort(voted, [&](Id x, Id y) { return votes[x] != votes[y] ? votes[x] > votes[y] : x > y; });
  if (voted.size() > kMaxSources) voted.resize(kMaxSources);
  return voted;
}

PromptMemory::Match PromptMemory::Find(std::string_view prompt) const {
  Match match;
  std::vector<Id> sources;
  if (const auto holder = DeepestHolder(Chain(prompt))) sources.push_back(*holder);
  if (!sources.empty()) match.equal_bytes = CommonPrefix(*TextOf(sources[0]), prompt);
  if (match.equal_bytes == prompt.size()) return match;
  for (const Id id : LikelySources(prompt, match.equal_bytes))
    if (std::ranges::find(sources, id) == sources.end()) sources.push_back(id);
  for (const Id id : sources) {
    const std::string& text = *TextOf(id);
    match.equal_bytes = std::max(match.equal_bytes, CommonPrefix(text, prompt));
    if (auto divergence = FindDivergence(text, prompt); Better(divergence, match.divergence, prompt.size()))
      match.divergence = std::move(divergence);
  }
  if (match.divergence && match.divergence->what_if_bytes <= match.equal_bytes) match.divergence.reset();
  return match;
}

void PromptMemory::Index(const std::string& text, const std::vector<BlockHash>& chain, Id id) {
  for (const BlockHash block : chain) by_block_[block.value] = id;
  for (const ContentChunk& chunk : ContentChunks(text, 0, std::string::npos)) by_chunk_[chunk.hash] = id;
}

void PromptMemory::Forget(Kept& kept) {
  for (const BlockHash block : Chain(kept.text)) EraseOwn(by_block_, block.value, kept.id);
  for (const ContentChunk& chunk : ContentChunks(kept.text, 0, std::string::npos))
    EraseOwn(by_chunk_, chunk.hash, kept.id);
  bytes_ -= kept.text.size();
  --prompts_;
  std::string().swap(kept.text);
}

void PromptMemory::Add(std::string prompt) {
  if (prompt.empty() || prompt.size() > max_bytes_ / 4) return;
  const std::vector<BlockHash> chain = Chain(prompt);
  if (const auto holder = DeepestHolder(chain)) {
    const std::string* before = TextOf(*holder);
    if (before->starts_with(prompt)) return;
    if (prompt.starts_with(*before)) Forget(kept_[*holder - kept_.front().id]);
  }
  const Id id = next_id_++;
  bytes_ += prompt.size();
  ++prompts_;
  Index(prompt, chain, id);
  kept_.push_back({id, std::move(prompt)});
  while (bytes_ > max_bytes_ || kept_.size() > kMaxPrompts ||
         (!kept_.empty() && kept_.front().text.empty())) {
    if (!kept_.front().text.empty()) Forget(kept_.front());
    kept_.pop_front();
  }
}

}  // namespace kvring::router
