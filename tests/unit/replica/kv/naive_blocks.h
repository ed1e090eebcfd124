// NaiveBlocks: what a BlockManager should do, without hashes, lists and block numbers: a prefix is a string,
// the cache is a map of strings, the victim is the idle block of the lowest class with the oldest stamp, the
// host tier a list of strings. Test only.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "replica/kv/block_manager.h"

namespace kvring::replica {

struct TrialShape {
  int32_t blocks = 24;
  int32_t block_size = 2;
  int32_t max_length = 14;
  size_t max_tables = 7;
  int32_t window = 0;
  int32_t tier_slots = 0;
  /// The canary: the model gives up the newest block instead of the oldest, so a difference must be found.
  bool broken_model = false;
};

struct ModelBlock {
  int references = 0;
  std::string prefix;  // matchable under this; empty: not
  uint64_t stamp = 0;
  Retention retention = Retention::kLow;
  Instant until;

  bool idle() const { return references == 0; }
  bool pinned() const { return retention == Retention::kPinned; }
};
using ModelRef = std::shared_ptr<ModelBlock>;  // null: the window has passed it

struct TrialRun {
  BlockTable table;
  std::vector<TokenId> history;
  int32_t computed = 0;
  char root = 'a';
  std::vector<ModelRef> model;
};

class NaiveBlocks {
 public:
  explicit NaiveBlocks(const TrialShape& shape) : shape_(shape) {}

  int used() const {
    return Count([](const ModelBlock& b) { return !b.idle(); });
  }
  int cached() const {
    return Count([](const ModelBlock& b) { return b.idle(); });
  }
  int pinned() const {
    return Count([](const ModelBlock& b) { return b.pinned(); });
  }
  const std::map<std::string, ModelRef>& prefixes() const { return prefixes_; }
  /// Prefixes in the pool, in the tier, or in both.
  size_t held() const {
    return prefixes_.size() +
           std::ranges::count_if(tier_, [&](const std::string& p) { return !prefixes_.contains(p); });
  }
  /// Blocks that follow `first` in the tier without a gap.
  int32_t InTier(const TrialRun& run, int32_t first, int32_t max_tokens) const {
    const auto length = std::min<int32_t>(max_tokens, static_cast<int32_t>(run.history.size()));
    int32_t end = first;
    while (end < length / shape_.block_size && TierHolds(Prefix(run, end + 1))) ++end;
    return end - first;
  }

  std::string Prefix(const TrialRun& run, int32_t blocks) const {
    std::string key(1, run.root);
    for (int32_t i = 0; i < blocks * shape_.block_size; ++i) key += static_cast<char>('0' + run.history[i]);
    return key;
  }

  /// First block of which a position sees a slot.
  int32_t FirstSeen(int32_t position) const {
    int32_t b = 0;
    while (shape_.window > 0 && (b + 1) * shape_.block_size <= position - shape_.window + 1) ++b;
    return b;
  }
  /// First block that a prefix of so many blocks needs; its last one in any case.
  int32_t FirstNeeded(int32_t blocks) const {
    return std::max(0, std::min(FirstSeen(blocks * shape_.block_size), blocks - 1));
  }

  /// The blocks of the longest prefix that can be used, null where they need not be there.
  std::vector<ModelRef> Match(const TrialRun& run, int32_t max_tokens) const {
    const int32_t limit =
        std::min<int32_t>(max_tokens, static_cast<int32_t>(run.history.size())) / shape_.block_size;
    for (int32_t end = limit; end > 0; --end) {
      std::vector<ModelRef> found(end);
      bool all = true;
      for (int32_t b = FirstNeeded(end); b < end && all; ++b) {
        const auto at = prefixes_.find(Prefix(run, b + 1));
        all = at != prefixes_.end();
        if (all) found[b] = at->second;
      }
      if (all) return found;
    }
    return {};
  }

  /// The cached tokens, or -1 when there is no room.
  int32_t Admit(TrialRun& run, int32_t max_tokens, int32_t headroom, int32_t max_blocks) {
    std::vector<ModelRef> found = Match(run, max_tokens);
    const auto hit = static_cast<int32_t>(found.size());
    const int32_t first = FirstNeeded(hit);
    const int64_t end = std::min<int64_t>(BlocksFor(run.history.size()), int64_t{first} + max_blocks);
    int newly_used = static_cast<int32_t>(end) - hit;
    for (const ModelRef& b : found) newly_used += b != nullptr && b->idle() && !b->pinned();
    if (newly_used + headroom > Room()) return -1;
    for (const ModelRef& b : found) {
      if (b != nullptr) ++b->references;
    }
    run.model = std::move(found);
    const int32_t in_tier = InTier(run, hit, max_tokens);
    for (int32_t b = hit + in_tier; b > hit; --b) TierPut(Prefix(run, b));
    while (static_cast<int64_t>(run.model.size()) < end) run.model.push_back(Allocate());
    int32_t loaded = 0;
    for (; loaded < in_tier && TierHolds(Prefix(run, hit + loaded + 1)); ++loaded) {
      const ModelRef& block = run.model[hit + loaded];
      block->prefix = Prefix(run, hit + loaded + 1);
      prefixes_[block->prefix] = block;
    }
    tier_hits += loaded * shape_.block_size;
    return (hit + loaded) * shape_.block_size;
  }

  /// Of a run just admitted: the block that is left out for its last token alone is in the cache.
  bool HoldsLastBlock(const TrialRun& run) const {
    const auto length = static_cast<int32_t>(run.history.size());
    const int32_t last = length / shape_.block_size;
    return length % shape_.block_size == 0 && run.computed == (last - 1) * shape_.block_size &&
           static_cast<int32_t>(run.model.size()) >= last && prefixes_.contains(Prefix(run, last));
  }

  bool Extend(TrialRun& run, int32_t end, bool& copied) {
    const size_t first = run.computed / shape_.block_size;
    copied = first < run.model.size() && run.model[first]->references > 1;
    const int32_t add = BlocksFor(end) - static_cast<int32_t>(run.model.size());
    if (std::max(add, 0) + copied > Room()) return false;
    if (copied) {
      --run.model[first]->references;
      run.model[first] = Allocate();
    }
    for (int32_t i = 0; i < add; ++i) run.model.push_back(Allocate());
    return true;
  }

  void Commit(TrialRun& run, int32_t from_block) {
    for (int32_t i = from_block; i < run.computed / shape_.block_size; ++i) {
      if (shape_.window == 0 && i > 0 && run.model[i - 1]->prefix.empty()) continue;
      if (!run.model[i]->prefix.empty()) continue;
      const std::string prefix = Prefix(run, i + 1);
      const auto [at, fresh] = prefixes_.try_emplace(prefix, run.model[i]);
      if (fresh) {
        run.model[i]->prefix = prefix;
        continue;
      }
      ++at->second->references;
      Drop(run.model[i]);
      run.model[i] = at->second;
    }
  }

  /// How many entries have become null.
  int32_t FreeBehind(TrialRun& run) {
    const int32_t end = std::min(FirstSeen(run.computed), static_cast<int32_t>(run.model.size()) - 1);
    Keep(run, end);
    int32_t passed = 0;
    for (int32_t b = 0; b < end; ++b) {
      passed += run.model[b] != nullptr;
      if (run.model[b] != nullptr) Drop(run.model[b]);
      run.model[b] = nullptr;
    }
    return passed;
  }

  void Release(TrialRun& run) {
    Keep(run, static_cast<int32_t>(run.model.size()));
    for (; !run.model.empty(); run.model.pop_back()) {
      if (run.model.back() != nullptr) Drop(run.model.back());
    }
  }

  int Evict(int n) {
    int evicted = 0;
    while (evicted < n && EvictOne()) ++evicted;
    return evicted;
  }

  void Clear() {
    prefixes_.clear();
    tier_.clear();
    for (const ModelRef& b : live_) {
      b->prefix.clear();
      b->retention = Retention::kLow;
      b->until = {};
    }
    std::erase_if(live_, [](const ModelRef& b) { return b->idle(); });
  }

  void AdvanceTo(Instant now) {
    now_ = now;
    std::vector<ModelRef> over;
    for (const ModelRef& b : live_) {
      if (b->idle() && b->retention >= Retention::kHigh && b->until <= now) over.push_back(b);
    }
    std::ranges::sort(over, {}, [](const ModelRef& b) { return std::pair(b->until, b->stamp); });
    for (const ModelRef& b : over) Shelve(b);
  }

  int Unpin() {
    const int before = pinned();
    std::vector<ModelRef> idle;
    for (const ModelRef& b : live_) {
      if (!b->pinned()) continue;
      b->retention = Retention::kHigh;
      if (b->idle()) idle.push_back(b);
    }
    std::ranges::sort(idle, {}, [](const ModelRef& b) { return b->stamp; });
    for (const ModelRef& b : idle) b->stamp = ++clock_;
    return before;
  }

  uint64_t tier_hits = 0;
  /// A victim that was the beginning of another cached prefix; empty: there was none.
  const std::string& fault() const { return fault_; }

 private:
  int Count(const std::function<bool(const ModelBlock&)>& wanted) const {
    return static_cast<int>(std::ranges::count_if(live_, [&](const ModelRef& b) { return wanted(*b); }));
  }
  int Room() const {
    return shape_.blocks - Count([](const ModelBlock& b) { return !b.idle() || b.pinned(); });
  }
  int32_t BlocksFor(size_t tokens) const {
    return (static_cast<int32_t>(tokens) + shape_.block_size - 1) / shape_.block_size;
  }

  ModelRef Allocate() {
    if (static_cast<int32_t>(live_.size()) == shape_.blocks) EvictOne();
    live_.push_back(std::make_shared<ModelBlock>(ModelBlock{.references = 1}));
    return live_.back();
  }

  bool EvictOne() {
    ModelRef victim;
    const auto before = [&](const ModelRef& a, const ModelRef& b) {
      if (a->retention != b->retention) return a->retention < b->retention;
      return shape_.broken_model ? a->stamp > b->stamp : a->stamp < b->stamp;
    };
    for (const ModelRef& b : live_) {
      if (b->idle() && !b->pinned() && (victim == nullptr || before(b, victim))) victim = b;
    }
    if (victim == nullptr) return false;
    const auto next = prefixes_.upper_bound(victim->prefix);
    if (shape_.window == 0 && next != prefixes_.end() && next->first.starts_with(victim->prefix))
      fault_ = "not a leaf: " + victim->prefix;
    prefixes_.erase(victim->prefix);
    if (victim->retention != Retention::kLow) TierPut(victim->prefix);
    std::erase(live_, victim);
    return true;
  }

  bool TierHolds(const std::string& prefix) const { return std::ranges::find(tier_, prefix) != tier_.end(); }
  void TierPut(const std::string& prefix) {
    if (shape_.tier_slots == 0) return;
    std::erase(tier_, prefix);
    if (static_cast<int32_t>(tier_.size()) == shape_.tier_slots) tier_.erase(tier_.begin());
    tier_.push_back(prefix);
  }

  void Keep(const TrialRun& run, int32_t end) {
    const CacheRetention& wanted = run.table.retention;
    int pins = std::max(0, shape_.blocks / 2 - pinned());
    for (int32_t i = 0; i < end; ++i) {
      const ModelRef& b = run.model[i];
      if (b == nullptr || b->prefix.empty()) continue;
      Retention retention = wanted.retention;
      if (retention == Retention::kPinned && !b->pinned() && pins-- <= 0) retention = Retention::kHigh;
      b->retention = std::max(b->retention, retention);
      if (retention >= Retention::kHigh) b->until = std::max(b->until, now_ + wanted.ttl);
    }
  }

  void Drop(const ModelRef& b) {
    if (--b->references > 0) return;
    if (b->prefix.empty()) {
      std::erase(live_, b);
    } else {
      Shelve(b);
    }
  }

  void Shelve(const ModelRef& b) {
    if (b->retention >= Retention::kHigh && b->until <= now_) b->retention = Retention::kNormal;
    b->stamp = ++clock_;
  }

  TrialShape shape_;
  std::vector<ModelRef> live_;
  std::map<std::string, ModelRef> prefixes_;
  std::vector<std::string> tier_;  // the most recently used last
  uint64_t clock_ = 0;
  Instant now_;
  std::string fault_;
};

}  // namespace kvring::replica
