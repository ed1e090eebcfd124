// BlockManagerTrial: operations on a BlockManager beside the naive model. Contents are checked through a pool
// of slots that is written and read by way of the tables only; events are replayed as a router would. Choices
// come from outside: a seeded generator (property test) or bytes (fuzz target). Each call gives the first
// difference, or nothing. Test only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "replica/kv/block_manager.h"
#include "tests/unit/replica/kv/naive_blocks.h"

namespace kvring::replica {

#define KVRING_TRIAL_EQ(a, b)                 \
  if (const int64_t x = (a), y = (b); x != y) \
  return std::string(#a " is ") + std::to_string(x) + ", but " #b " is " + std::to_string(y)
#define KVRING_TRIAL_TRUE(a) \
  if (!(a)) return std::string("not true: " #a)

class BlockManagerTrial {
 public:
  /// choose(n): a number in [0, n).
  using Choose = std::function<uint64_t(uint64_t)>;

  BlockManagerTrial(const TrialShape& shape, Choose choose)
      : shape_(shape),
        choose_(std::move(choose)),
        slots_(static_cast<size_t>(shape.blocks) * shape.block_size, -1),
        tier_(slots_, shape),
        manager_({.num_blocks = shape.blocks,
                  .block_size = shape.block_size,
                  .window = shape.window,
                  .key = 7,
                  .tier = {.slots = shape.tier_slots, .store = &tier_}}),
        model_(shape) {}

  std::string Operate() {
    manager_.AdvanceTo(now_);
    model_.AdvanceTo(now_);
    const uint64_t what = choose_(18);
    if (what < 3) return Admit();
    if (what < 9) return Advance();
    if (what < 11) return Fork();
    if (what < 13) return Release();
    if (what == 13) return Preempt();
    if (what == 14) return DoubleRelease();
    if (what == 15) return Wait();
    if (what == 16) return FreeBehind();
    return choose_(40) == 0 ? Clear() : Evict();
  }

  std::string Check() {
    KVRING_TRIAL_EQ(manager_.used_blocks(), model_.used());
    KVRING_TRIAL_EQ(manager_.cached_blocks(), model_.cached());
    KVRING_TRIAL_EQ(manager_.pinned_blocks(), model_.pinned());
    KVRING_TRIAL_EQ(manager_.free_blocks(), shape_.blocks - model_.used() - model_.cached());
    KVRING_TRIAL_EQ(manager_.stats().double_frees, double_frees_);
    KVRING_TRIAL_EQ(manager_.stats().copies, copies);
    KVRING_TRIAL_EQ(manager_.stats().hit_tokens, hits);
    KVRING_TRIAL_EQ(manager_.stats().tier_hit_tokens, model_.tier_hits);
    KVRING_TRIAL_EQ(manager_.stats().collisions, 0);
    std::vector<const BlockTable*> tables;
    for (const auto& run : runs_) tables.push_back(&run->table);
    if (std::string fault = manager_.CheckIntegrity(tables); !fault.empty()) return fault;
    if (!model_.fault().empty()) return model_.fault();
    if (std::string fault = ReplayEvents(); !fault.empty()) return fault;
    return runs_.empty() ? "" : CheckContents(*runs_[choose_(runs_.size())]);
  }

  /// Releases all and looks whether everything has come back.
  std::string Finish() {
    while (!runs_.empty()) {
      if (std::string fault = Release(); !fault.empty()) return fault;
    }
    manager_.Unpin();
    manager_.Evict(shape_.blocks);
    KVRING_TRIAL_EQ(manager_.free_blocks(), shape_.blocks);
    return manager_.CheckIntegrity();
  }

  uint64_t hits = 0, copies = 0, refusals = 0, nulls = 0, pins = 0;
  uint64_t tier_hits() const { return model_.tier_hits; }

 private:
  // The pool's slots, copied block by block.
  class Tier final : public BlockStore {
   public:
    Tier(std::vector<TokenId>& pool, const TrialShape& shape)
        : pool_(pool),
          block_(shape.block_size),
          slots_(static_cast<size_t>(shape.tier_slots) * shape.block_size, -1) {}
    void Save(BlockId block, int32_t slot, const StoredBlock&) override {
      std::copy_n(pool_.begin() + block.value * block_, block_, slots_.begin() + slot * block_);
    }
    bool Load(int32_t slot, const StoredBlock&, BlockId block) override {
      std::copy_n(slots_.begin() + slot * block_, block_, pool_.begin() + block.value * block_);
      return true;
    }
    void Forget(int32_t slot) override { std::fill_n(slots_.begin() + slot * block_, block_, -1); }

   private:
    std::vector<TokenId>& pool_;
    int32_t block_;
    std::vector<TokenId> slots_;
  };

  static CacheRoot Root(char name) {
    return MakeCacheRoot({.model = "m", .salt = std::string_view(&name, 1)});
  }

  // A router's view, built from events alone, holds as many prefixes as the model and, but for what a window
  // has passed, never an orphan.
  std::string ReplayEvents() {
    for (const CacheEvent& event : manager_.events().Take().events) {
      if (event.kind == CacheEvent::Kind::kCleared) stored_.clear();
      if (event.kind == CacheEvent::Kind::kRemoved) KVRING_TRIAL_EQ(stored_.erase(event.hash), 1);
      if (event.kind != CacheEvent::Kind::kStored) continue;
      KVRING_TRIAL_TRUE(shape_.window > 0 || stored_.contains(event.parent) ||
                        event.parent == Root('a').hash || event.parent == Root('b').hash);
      KVRING_TRIAL_TRUE(stored_.insert(event.hash).second);
    }
    KVRING_TRIAL_EQ(stored_.size(), model_.held());
    KVRING_TRIAL_EQ(stored_.size(), manager_.Snapshot().size());
    return "";
  }

  std::string CheckContents(const TrialRun& run) const {
    const int32_t first = shape_.window == 0 ? 0 : std::max(0, run.computed - shape_.window + 1);
    for (int32_t p = first; p < run.computed; ++p) {
      KVRING_TRIAL_TRUE(run.table.blocks[p / shape_.block_size] != kNullBlock);
      KVRING_TRIAL_EQ(Slot(run.table, p), run.history[p]);
    }
    for (size_t b = 0; b < run.model.size(); ++b)
      KVRING_TRIAL_EQ(run.table.blocks[b] == kNullBlock, run.model[b] == nullptr);
    return "";
  }

  const TokenId& Slot(const BlockTable& table, int32_t p) const {
    return slots_[table.blocks[p / shape_.block_size].value * shape_.block_size + p % shape_.block_size];
  }
  TokenId& Slot(const BlockTable& table, int32_t p) {
    return slots_[table.blocks[p / shape_.block_size].value * shape_.block_size + p % shape_.block_size];
  }

  void Copy(const BlockCopy& copy) {
    for (int32_t i = 0; i < copy.tokens; ++i)
      slots_[copy.to.value * shape_.block_size + i] = slots_[copy.from.value * shape_.block_size + i];
  }

  std::string Admit() {
    if (runs_.size() >= shape_.max_tables) return "";
    auto run = std::make_unique<TrialRun>();
    run->root = choose_(2) == 0 ? 'a' : 'b';
    run->table.root = Root(run->root);
    run->table.retention = {choose_(3) == 0 ? static_cast<Retention>(choose_(4)) : Retention::kNormal,
                            Duration(choose_(20))};
    const auto length = static_cast<int32_t>(1 + choose_(shape_.max_length - 2));
    for (int32_t i = 0; i < length; ++i) run->history.push_back(static_cast<TokenId>(choose_(2)));
    const auto max_cached = static_cast<int32_t>(choose_(4) == 0 ? choose_(length) : length - 1);
    const auto headroom = static_cast<int32_t>(choose_(3));
    const int32_t max_blocks = manager_.BlocksHeldAtMost(1 + static_cast<int32_t>(choose_(3)));
    const auto in_pool = static_cast<int32_t>(model_.Match(*run, max_cached).size());
    KVRING_TRIAL_EQ(manager_.Match(run->table, run->history, max_cached),
                    (in_pool + model_.InTier(*run, in_pool, max_cached)) * shape_.block_size);
    const int32_t expected = model_.Admit(*run, max_cached, headroom, max_blocks);
    const std::optional<int32_t> cached = manager_.Admit(run->table, {.tokens = run->history,
                                                                      .max_cached_tokens = max_cached,
                                                                      .headroom_blocks = headroom,
                                                                      .max_blocks = max_blocks});
    KVRING_TRIAL_EQ(cached.value_or(-1), expected);
    refusals += !cached.has_value();
    if (!cached.has_value()) return "";
    run->computed = expected;
    hits += expected;
    if (max_cached == length - 1) {
      const std::optional<BlockCopy> copy = manager_.CopyOfLastBlock(run->table, run->history);
      KVRING_TRIAL_EQ(copy.has_value(), model_.HoldsLastBlock(*run));
      if (copy.has_value()) Copy(*copy);
      if (copy.has_value()) run->computed = length - 1;
    }
    runs_.push_back(std::move(run));
    return "";
  }

  // Computes some of the history, or the whole of it and new tokens.
  std::string Advance() {
    if (runs_.empty()) return "";
    TrialRun& run = *runs_[choose_(runs_.size())];
    if (run.computed == static_cast<int32_t>(run.history.size())) {
      if (run.computed >= shape_.max_length) return "";
      run.history.push_back(static_cast<TokenId>(choose_(2)));
    }
    const auto end = static_cast<int32_t>(run.computed + 1 + choose_(run.history.size() - run.computed));
    bool copied = false;
    const bool fits = model_.Extend(run, end, copied);
    const BlockManager::Extension extension = manager_.Extend(run.table, run.computed, end);
    KVRING_TRIAL_EQ(extension.ok, fits);
    if (!fits) return "";
    copies += copied;
    if (extension.copy.has_value()) Copy(*extension.copy);
    for (int32_t p = run.computed; p < end; ++p) Slot(run.table, p) = run.history[p];
    const int32_t from_block = run.computed / shape_.block_size;
    run.computed = end;
    model_.Commit(run, from_block);
    manager_.Commit(run.table, run.history, end);
    return "";
  }

  std::string FreeBehind() {
    if (runs_.empty()) return "";
    TrialRun& run = *runs_[choose_(runs_.size())];
    const int32_t passed = model_.FreeBehind(run);
    KVRING_TRIAL_EQ(manager_.FreeBehind(run.table, run.computed), passed);
    nulls += passed;
    pins += manager_.pinned_blocks();
    return "";
  }

  std::string Fork() {
    if (runs_.empty() || runs_.size() >= shape_.max_tables) return "";
    const TrialRun& from = *runs_[choose_(runs_.size())];
    if (from.computed == 0) return "";
    auto run = std::make_unique<TrialRun>(from);
    run->history.resize(from.computed);
    run->model.resize((from.computed + shape_.block_size - 1) / shape_.block_size);
    for (const ModelRef& b : run->model) {
      if (b != nullptr) ++b->references;
    }
    run->table = manager_.Fork(from.table, from.computed);
    runs_.push_back(std::move(run));
    return "";
  }

  std::string Release() {
    if (runs_.empty()) return "";
    const size_t at = choose_(runs_.size());
    manager_.Release(runs_[at]->table);
    model_.Release(*runs_[at]);
    runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(at));
    return "";
  }

  // Gives all back and comes again with the same table, or not when there is no room.
  std::string Preempt() {
    if (runs_.empty()) return "";
    const size_t at = choose_(runs_.size());
    TrialRun& run = *runs_[at];
    manager_.Release(run.table);
    model_.Release(run);
    const auto max_cached = static_cast<int32_t>(run.history.size()) - 1;
    const int32_t max_blocks = manager_.BlocksHeldAtMost(1);
    const int32_t expected = model_.Admit(run, max_cached, 0, max_blocks);
    const std::optional<int32_t> cached = manager_.Admit(run.table, {.tokens = run.history,
                                                                     .max_cached_tokens = max_cached,
                                                                     .max_blocks = max_blocks,
                                                                     .readmission = true});
    KVRING_TRIAL_EQ(cached.value_or(-1), expected);
    run.computed = expected;
    if (!cached.has_value()) runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(at));
    return "";
  }

  std::string DoubleRelease() {
    BlockTable released;
    manager_.Release(released);
    ++double_frees_;
    return "";
  }

  // Time passes; now and then all pins are taken off.
  std::string Wait() {
    now_ = now_ + Duration(choose_(6));
    manager_.AdvanceTo(now_);
    model_.AdvanceTo(now_);
    if (choose_(8) == 0) KVRING_TRIAL_EQ(manager_.Unpin(), model_.Unpin());
    return "";
  }

  std::string Evict() {
    const auto n = static_cast<int32_t>(choose_(5));
    KVRING_TRIAL_EQ(manager_.Evict(n), model_.Evict(n));
    return "";
  }

  std::string Clear() {
    manager_.Clear();
    model_.Clear();
    return "";
  }

  TrialShape shape_;
  Choose choose_;
  std::vector<TokenId> slots_;  // the pool
  Tier tier_;
  BlockManager manager_;
  NaiveBlocks model_;
  std::vector<std::unique_ptr<TrialRun>> runs_;
  std::set<BlockHash> stored_;
  Instant now_;
  uint64_t double_frees_ = 0;
};

#undef KVRING_TRIAL_EQ
#undef KVRING_TRIAL_TRUE

}  // namespace kvring::replica
