#include "replica/model/bpe.h"

#include <queue>
#include <tuple>

namespace kvring::replica {
namespace {

// Below this length scanning all pairs each round is faster than a heap.
constexpr size_t kShort = 24;

uint64_t Key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerges::Add(const Rule& rule) {
  merges_.try_emplace(Key(rule.left, rule.right), Merge{rule.rank, rule.merged});
}

const BpeMerges::Merge* BpeMerges::Find(TokenId left, TokenId right) const {
  const auto it = merges_.find(Key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BpeMerges::Apply(std::vector<TokenId>& symbols) const {
  if (symbols.size() <= kShort) {
    ApplyShort(symbols);
  } else {
    ApplyLong(symbols);
  }
}

void BpeMerges::ApplyShort(std::vector<TokenId>& symbols) const {
  while (symbols.size() > 1) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = Find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return;
    symbols[at] = best->merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

// A heap of candidate merges (rank, left position) over a doubly linked list. An entry is stale, and skipped,
// when its pair is no longer what stands there.
void BpeMerges::ApplyLong(std::vector<TokenId>& symbols) const {
  constexpr TokenId kGone = -1;
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(n), previous(n);
  using Entry = std::tuple<int32_t, int32_t, TokenId, TokenId>;  // rank, left position, left, right
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  auto offer = [&](int32_t left) {
    if (left < 0 || next[left] >= n) return;
    const int32_t right = next[left];
    if (const Merge* merge = Find(symbols[left], symbols[right]))
      heap.push({merge->rank, left, symbols[left], symbols[right]});
  };
  for (int32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  for (int32_t i = 0; i + 1 < n; ++i) offer(i);
  while (!heap.empty()) {
    const auto [rank, left, left_id, right_id] = heap.top();
    heap.pop();
    if (symbols[left] != left_id || next[left] >= n || symbols[next[left]] != right_id) continue;
    const int32_t right = next[left];
    symbols[left] = Find(left_id, right_id)->merged;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] < n) previous[next[left]] = left;
    offer(left);
    offer(previous[left]);
  }
  std::erase(symbols, kGone);
}

}  // namespace kvring::replica
