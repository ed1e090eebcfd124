// Random operations against a naive model. The model knows no hashes, no lists and no block numbers: a prefix
// is a string, the cache is a map of strings, the victim is the idle one with the oldest stamp. Contents are
// checked through a pool of slots that is written and read by way of the tables only.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/random.h"
#include "replica/kv/block_manager.h"

namespace kvring::replica {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOperations = 60'000;
#else
constexpr int kOperations = 1'000'000;
#endif
constexpr int32_t kBlocks = 24;
constexpr int32_t kBlockSize = 2;
constexpr int32_t kMaxLength = 14;
constexpr size_t kMaxTables = 7;

struct ModelBlock {
  int references = 0;
  std::string prefix;  // matchable under this; empty: not
  uint64_t stamp = 0;
};
using ModelRef = std::shared_ptr<ModelBlock>;

struct Run {
  BlockTable table;
  std::vector<TokenId> history;
  int32_t computed = 0;
  char root = 'a';
  std::vector<ModelRef> model;
};

class Model {
 public:
  int used() const {
    int n = 0;
    for (const ModelRef& b : live_) n += b->references > 0;
    return n;
  }
  int cached() const { return static_cast<int>(live_.size()) - used(); }
  const std::map<std::string, ModelRef>& prefixes() const { return prefixes_; }

  static std::string Prefix(const Run& run, int32_t blocks) {
    std::string key(1, run.root);
    for (int32_t i = 0; i < blocks * kBlockSize; ++i) key += static_cast<char>('0' + run.history[i]);
    return key;
  }

  std::vector<ModelRef> Match(const Run& run, int32_t max_tokens) const {
    std::vector<ModelRef> found;
    const int32_t limit = std::min<int32_t>(max_tokens, run.history.size()) / kBlockSize;
    for (int32_t i = 1; i <= limit; ++i) {
      const auto at = prefixes_.find(Prefix(run, i));
      if (at == prefixes_.end()) break;
      found.push_back(at->second);
    }
    return found;
  }

  /// The cached tokens, or -1 when there is no room.
  int32_t Admit(Run& run, int32_t max_tokens, int32_t headroom) {
    std::vector<ModelRef> found = Match(run, max_tokens);
    const auto need = static_cast<int32_t>((run.history.size() + kBlockSize - 1) / kBlockSize);
    int newly_used = need - static_cast<int32_t>(found.size());
    for (const ModelRef& b : found) newly_used += b->references == 0;
    if (used() + newly_used + headroom > kBlocks) return -1;
    for (const ModelRef& b : found) ++b->references;
    const auto hits = static_cast<int32_t>(found.size()) * kBlockSize;
    run.model = std::move(found);
    while (static_cast<int32_t>(run.model.size()) < need) run.model.push_back(Allocate());
    return hits;
  }

  bool Extend(Run& run, int32_t end, bool& copied) {
    const size_t first = run.computed / kBlockSize;
    copied = first < run.model.size() && run.model[first]->references > 1;
    const int32_t add = (end + kBlockSize - 1) / kBlockSize - static_cast<int32_t>(run.model.size());
    if (used() + std::max(add, 0) + copied > kBlocks) return false;
    if (copied) {
      --run.model[first]->references;
      run.model[first] = Allocate();
    }
    for (int32_t i = 0; i < add; ++i) run.model.push_back(Allocate());
    return true;
  }

  void Commit(Run& run, int32_t from_block) {
    for (int32_t i = from_block; i < run.computed / kBlockSize; ++i) {
      if (i > 0 && run.model[i - 1]->prefix.empty()) continue;
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

  void Release(Run& run) {
    for (; !run.model.empty(); run.model.pop_back()) Drop(run.model.back());
  }

  int Evict(int n) {
    int evicted = 0;
    for (; evicted < n && EvictOne(); ++evicted) {
    }
    return evicted;
  }

  void Clear() {
    prefixes_.clear();
    for (const ModelRef& b : live_) b->prefix.clear();
    std::erase_if(live_, [](const ModelRef& b) { return b->references == 0; });
  }

 private:
  ModelRef Allocate() {
    if (live_.size() == kBlocks) {
      EXPECT_TRUE(EvictOne());
    }
    live_.push_back(std::make_shared<ModelBlock>(ModelBlock{.references = 1}));
    return live_.back();
  }

  bool EvictOne() {
    ModelRef victim;
    for (const ModelRef& b : live_) {
      if (b->references == 0 && (victim == nullptr || b->stamp < victim->stamp)) victim = b;
    }
    if (victim == nullptr) return false;
    // Leaf first: no matchable prefix goes on from the victim.
    const auto next = prefixes_.upper_bound(victim->prefix);
    EXPECT_TRUE(next == prefixes_.end() || !next->first.starts_with(victim->prefix)) << victim->prefix;
    prefixes_.erase(victim->prefix);
    std::erase(live_, victim);
    return true;
  }

  void Drop(const ModelRef& b) {
    if (--b->references > 0) return;
    if (b->prefix.empty()) {
      std::erase(live_, b);
    } else {
      b->stamp = ++clock_;
    }
  }

  std::vector<ModelRef> live_;
  std::map<std::string, ModelRef> prefixes_;
  uint64_t clock_ = 0;
};

class PropertyRun {
 public:
  explicit PropertyRun(uint64_t seed)
      : random_(seed),
        manager_({.num_blocks = kBlocks, .block_size = kBlockSize}),
        slots_(kBlocks * kBlockSize, -1) {}

  void Operate() {
    switch (random_.Below(16)) {
      case 0:
      case 1:
      case 2:
        return Admit();
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        return Advance();
      case 9:
      case 10:
        return Fork();
      case 11:
      case 12:
      case 13:
        return Release();
      case 14:
        return DoubleRelease();
      default:
        return random_.Below(40) == 0 ? Clear() : Evict();
    }
  }

  void Check() {
    ASSERT_EQ(manager_.used_blocks(), model_.used());
    ASSERT_EQ(manager_.cached_blocks(), model_.cached());
    ASSERT_EQ(manager_.free_blocks(), kBlocks - model_.used() - model_.cached());
    std::vector<const BlockTable*> tables;
    for (const auto& run : runs_) tables.push_back(&run->table);
    ASSERT_EQ(manager_.CheckIntegrity(tables), "");
    ASSERT_EQ(manager_.stats().double_frees, double_frees_);
    ASSERT_EQ(manager_.stats().copies, copies_);
    ASSERT_EQ(manager_.stats().hit_tokens, hits_);
    ASSERT_EQ(manager_.stats().collisions, 0u);
    ReplayEvents();
    if (!runs_.empty()) CheckContents(*runs_[random_.Below(runs_.size())]);
  }

  uint64_t hits() const { return hits_; }
  uint64_t copies() const { return copies_; }
  uint64_t refusals() const { return refusals_; }

 private:
  // A router's view, built from events alone, holds as many prefixes as the model and never an orphan.
  void ReplayEvents() {
    for (const CacheEvent& event : manager_.events().Take().events) {
      if (event.kind == CacheEvent::Kind::kCleared) stored_.clear();
      if (event.kind == CacheEvent::Kind::kRemoved) {
        ASSERT_EQ(stored_.erase(event.hash), 1u);
      }
      if (event.kind != CacheEvent::Kind::kStored) continue;
      ASSERT_TRUE(stored_.contains(event.parent) || event.parent == Root('a').hash ||
                  event.parent == Root('b').hash);
      ASSERT_TRUE(stored_.insert(event.hash).second);
    }
    ASSERT_EQ(stored_.size(), model_.prefixes().size());
  }

  static CacheRoot Root(char name) {
    return MakeCacheRoot({.model = "m", .salt = std::string_view(&name, 1)});
  }

  void CheckContents(const Run& run) {
    for (int32_t p = 0; p < run.computed; ++p) {
      ASSERT_EQ(slots_[run.table.blocks[p / kBlockSize].value * kBlockSize + p % kBlockSize], run.history[p])
          << p;
    }
  }

  void Admit() {
    if (runs_.size() >= kMaxTables) return;
    auto run = std::make_unique<Run>();
    run->root = random_.Below(2) == 0 ? 'a' : 'b';
    run->table.root = Root(run->root);
    const int32_t length = 1 + static_cast<int32_t>(random_.Below(kMaxLength - 2));
    for (int32_t i = 0; i < length; ++i) run->history.push_back(static_cast<TokenId>(random_.Below(2)));
    const auto max_cached = static_cast<int32_t>(random_.Below(4) == 0 ? random_.Below(length) : length - 1);
    const auto headroom = static_cast<int32_t>(random_.Below(3));
    ASSERT_EQ(manager_.Match(run->table, run->history, max_cached),
              static_cast<int32_t>(model_.Match(*run, max_cached).size()) * kBlockSize);
    const int32_t expected = model_.Admit(*run, max_cached, headroom);
    const std::optional<int32_t> cached = manager_.Admit(
        run->table, {.tokens = run->history, .max_cached_tokens = max_cached, .headroom_blocks = headroom});
    ASSERT_EQ(cached.value_or(-1), expected);
    if (!cached.has_value()) {
      ++refusals_;
      return;
    }
    run->computed = expected;
    hits_ += expected;
    runs_.push_back(std::move(run));
  }

  // Computes some of the history, or the whole of it and new tokens.
  void Advance() {
    if (runs_.empty()) return;
    Run& run = *runs_[random_.Below(runs_.size())];
    if (run.computed == static_cast<int32_t>(run.history.size())) {
      if (run.computed >= kMaxLength) return;
      run.history.push_back(static_cast<TokenId>(random_.Below(2)));
    }
    const int32_t end =
        run.computed + 1 + static_cast<int32_t>(random_.Below(run.history.size() - run.computed));
    bool copied = false;
    const bool fits = model_.Extend(run, end, copied);
    const BlockManager::Extension extension = manager_.Extend(run.table, run.computed, end);
    ASSERT_EQ(extension.ok, fits);
    if (!fits) return;
    copies_ += copied;
    for (int32_t i = 0; i < extension.copy_tokens; ++i) {
      slots_[extension.copy_to.value * kBlockSize + i] = slots_[extension.copy_from.value * kBlockSize + i];
    }
    for (int32_t p = run.computed; p < end; ++p) {
      slots_[run.table.blocks[p / kBlockSize].value * kBlockSize + p % kBlockSize] = run.history[p];
    }
    const int32_t from_block = run.computed / kBlockSize;
    run.computed = end;
    model_.Commit(run, from_block);
    manager_.Commit(run.table, run.history, end);
  }

  void Fork() {
    if (runs_.empty() || runs_.size() >= kMaxTables) return;
    const Run& from = *runs_[random_.Below(runs_.size())];
    auto run = std::make_unique<Run>(from);
    run->history.resize(from.computed);
    run->model.resize((from.computed + kBlockSize - 1) / kBlockSize);
    if (run->history.empty()) return;
    for (const ModelRef& b : run->model) ++b->references;
    run->table = manager_.Fork(from.table, from.computed);
    runs_.push_back(std::move(run));
  }

  void Release() {
    if (runs_.empty()) return;
    const size_t at = random_.Below(runs_.size());
    manager_.Release(runs_[at]->table);
    model_.Release(*runs_[at]);
    runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(at));
  }

  void DoubleRelease() {
    BlockTable released;
    manager_.Release(released);
    ++double_frees_;
  }

  void Evict() {
    const auto n = static_cast<int32_t>(random_.Below(5));
    ASSERT_EQ(manager_.Evict(n), model_.Evict(n));
  }

  void Clear() {
    manager_.Clear();
    model_.Clear();
  }

  Random random_;
  BlockManager manager_;
  Model model_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<TokenId> slots_;
  std::set<BlockHash> stored_;
  uint64_t double_frees_ = 0, copies_ = 0, hits_ = 0, refusals_ = 0;
};

TEST(BlockManagerPropertyTest, RandomOperations_EqualTheNaiveModel) {
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(seed);
    PropertyRun run(seed);
    for (int i = 0; i < kOperations / 2; ++i) {
      run.Operate();
      run.Check();
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure())
        FAIL() << "operation " << i;
    }
    const uint64_t some = kOperations / 1000;
    EXPECT_GT(run.hits(), some);
    EXPECT_GT(run.copies(), some);
    EXPECT_GT(run.refusals(), some);
  }
}

}  // namespace
}  // namespace kvring::replica
