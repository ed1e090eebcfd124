// The engine with a host tier: what was evicted is loaded back, never wrong, and the router hears of both as
// one.
#include <gtest/gtest.h>

#include "tests/unit/replica/engine/engine_driver.h"
#include "tests/unit/replica/engine/toy_block_store.h"

namespace kvring::replica {
namespace {

constexpr int32_t kVocabulary = 64;

// A pool of 7 blocks of 16: a prompt of 100 tokens and its answer push out all others.
class EngineHostTierTest : public testing::Test {
 protected:
  static EngineOptions Options(BlockStore& store, int32_t slots) {
    return {.scheduler = {.max_batch_tokens = 128, .max_running = 4},
            .host_tier = {.slots = slots, .store = &store}};
  }
  EngineRequest Ask(uint64_t prompt) { return Greedy(next_id_++, RandomPrompt(prompt, 100, kVocabulary), 4); }

  ToyExecutor executor_{
      {.vocab_size = kVocabulary, .context_length = 1000, .block_size = 16, .num_blocks = 7}};
  ToyBlockStore store_{executor_};
  uint64_t next_id_ = 1;
};

TEST_F(EngineHostTierTest, EvictedPrompt_IsLoadedAndNotComputed_SameAnswer) {
  EngineDriver driver(executor_, Options(store_, 32));
  const Answer cold = driver.RunOne(Ask(1));
  driver.RunOne(Ask(2));
  const int64_t before = executor_.computed_tokens;
  const Answer back = driver.RunOne(Ask(1));
  EXPECT_EQ(back.choices, cold.choices);
  EXPECT_EQ(back.usage->cached_tokens, 96);
  EXPECT_EQ(executor_.computed_tokens - before, 4 + 3);
  EXPECT_GT(driver.engine.cache_stats().tier_hit_tokens, 0u);
}

TEST_F(EngineHostTierTest, LoadedBlockEvictedAgain_IsNotCopiedAgain) {
  EngineDriver driver(executor_, Options(store_, 32));
  for (int round = 0; round < 2; ++round) {
    for (const uint64_t prompt : {1, 2}) driver.RunOne(Ask(prompt));
  }
  const int saves = store_.saves;
  for (int round = 0; round < 5; ++round) {
    for (const uint64_t prompt : {1, 2}) EXPECT_EQ(driver.RunOne(Ask(prompt)).usage->cached_tokens, 96);
  }
  EXPECT_EQ(store_.saves, saves);
}

TEST_F(EngineHostTierTest, DamagedSlot_IsComputedAgain_SameAnswer) {
  ToyBlockStore damaged(executor_, /*fail_every=*/1);
  EngineDriver driver(executor_, Options(damaged, 32));
  const Answer cold = driver.RunOne(Ask(1));
  driver.RunOne(Ask(2));
  EXPECT_EQ(driver.RunOne(Ask(1)).choices, cold.choices);
  EXPECT_GT(driver.engine.cache_stats().tier_damaged_blocks, 0u);
  EXPECT_EQ(driver.engine.cache_stats().tier_hit_tokens, 0u);
}

TEST_F(EngineHostTierTest, ClassLowAndClear_AreNotKept) {
  EngineDriver driver(executor_, Options(store_, 32));
  EngineRequest once = Ask(1);
  once.retention.retention = Retention::kLow;
  driver.RunOne(once);
  driver.RunOne(Ask(2));
  EXPECT_EQ(driver.RunOne(Ask(1)).usage->cached_tokens, 0);
  driver.engine.ClearCache();
  EXPECT_EQ(driver.engine.Load().kv_host_tier_tokens, 0);
  EXPECT_EQ(driver.RunOne(Ask(2)).usage->cached_tokens, 0);
}

// 12 slots: two prompts of 6 whole blocks.
TEST_F(EngineHostTierTest, FullTier_GivesUpTheLeastRecentlyUsed) {
  EngineDriver driver(executor_, Options(store_, 12));
  for (const uint64_t prompt : {1, 2, 3, 4}) driver.RunOne(Ask(prompt));
  EXPECT_EQ(driver.engine.Load().kv_host_tier_tokens, 12 * 16);
  EXPECT_EQ(driver.RunOne(Ask(1)).usage->cached_tokens, 0);
  EXPECT_EQ(driver.RunOne(Ask(4)).usage->cached_tokens, 96);
}

TEST_F(EngineHostTierTest, Events_TellOfABlockOnceUntilNeitherHoldsIt) {
  EngineDriver driver(executor_, Options(store_, 12));
  std::set<BlockHash> held;
  for (const uint64_t prompt : {1, 2, 1, 3, 2, 4, 4, 1}) {
    driver.RunOne(Ask(prompt));
    for (const CacheEvent& event : driver.engine.TakeCacheEvents().events) {
      const bool stored = event.kind == CacheEvent::Kind::kStored;
      EXPECT_TRUE(stored ? held.insert(event.hash).second : held.erase(event.hash) == 1);
    }
    std::set<BlockHash> snapshot;
    for (const CacheEvent& event : driver.engine.CacheSnapshot()) snapshot.insert(event.hash);
    EXPECT_EQ(held, snapshot);
  }
}

TEST_F(EngineHostTierTest, RestoredSlots_AreFoundByTheNextProcess) {
  const EngineRequest request = Ask(1);
  Answer cold;
  std::vector<RestoredSlot> left;
  {
    class Recorder final : public BlockStore {
     public:
      explicit Recorder(BlockStore& inner) : inner_(inner) {}
      void Save(BlockId block, int32_t slot, const StoredBlock& what) override {
        inner_.Save(block, slot, what);
        saved.push_back({slot, what});
      }
      bool Load(int32_t slot, const StoredBlock& what, BlockId block) override {
        return inner_.Load(slot, what, block);
      }
      void Forget(int32_t slot) override { inner_.Forget(slot); }
      std::vector<RestoredSlot> saved;

     private:
      BlockStore& inner_;
    } recorder(store_);
    EngineDriver driver(executor_, Options(recorder, 32));
    cold = driver.RunOne(request);
    driver.RunOne(Ask(2));
    left = recorder.saved;
  }
  EngineOptions options = Options(store_, 32);
  options.host_tier.restored = left;
  EngineDriver driver(executor_, options);
  EXPECT_EQ(driver.engine.TakeCacheEvents().events.size(), left.size());
  const Answer warm = driver.RunOne(request);
  EXPECT_EQ(warm.usage->cached_tokens, 96);
  EXPECT_EQ(warm.choices, cold.choices);
}

}  // namespace
}  // namespace kvring::replica
