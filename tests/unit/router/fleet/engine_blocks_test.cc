#include "router/fleet/engine_blocks.h"

#include <gtest/gtest.h>

namespace kvring::router {
namespace {

std::vector<BlockHash> Chain(uint64_t from, uint64_t to) {
  std::vector<BlockHash> chain;
  for (uint64_t i = from; i < to; ++i) chain.push_back({i});
  return chain;
}

std::vector<CacheEvent> Events(CacheEventKind kind, uint64_t from, uint64_t to) {
  std::vector<CacheEvent> events;
  for (uint64_t i = from; i < to; ++i) events.push_back({kind, {i}, {}});
  return events;
}

TEST(EngineBlocks, StoredAndRemoved_DepthFollows) {
  EngineBlocks blocks(1000);
  blocks.Apply(2, {Epoch{1}, 1, Events(CacheEventKind::kStored, 100, 150)});
  EXPECT_EQ(blocks.Depth(2, Chain(100, 200)), 50u);
  EXPECT_EQ(blocks.Depth(2, Chain(100, 120)), 20u);
  EXPECT_EQ(blocks.Depth(1, Chain(100, 200)), 0u);
  blocks.Apply(2, {Epoch{1}, 51, Events(CacheEventKind::kRemoved, 140, 150)});
  EXPECT_EQ(blocks.Depth(2, Chain(100, 200)), 40u);
  EXPECT_EQ(blocks.size(), 40u);
}

TEST(EngineBlocks, GapInTheSequence_ForgetsWhatWasBefore) {
  EngineBlocks blocks(1000);
  blocks.Apply(0, {Epoch{1}, 1, Events(CacheEventKind::kStored, 100, 150)});
  blocks.Apply(0, {Epoch{1}, 52, Events(CacheEventKind::kStored, 300, 310)});
  EXPECT_EQ(blocks.Depth(0, Chain(100, 200)), 0u);
  EXPECT_EQ(blocks.Depth(0, Chain(300, 400)), 10u);
  blocks.Apply(0, {Epoch{2}, 62, Events(CacheEventKind::kStored, 400, 401)});
  EXPECT_EQ(blocks.size(), 1u);
}

TEST(EngineBlocks, Bound_IsHeldAtInsert) {
  EngineBlocks blocks(100);
  blocks.Apply(0, {Epoch{1}, 1, Events(CacheEventKind::kStored, 0, 500)});
  blocks.Apply(1, {Epoch{1}, 1, Events(CacheEventKind::kStored, 0, 500)});
  EXPECT_EQ(blocks.size(), 100u);
  EXPECT_EQ(blocks.Depth(0, Chain(0, 500)), 100u);
  blocks.Forget(0);
  EXPECT_FALSE(blocks.any());
}

}  // namespace
}  // namespace kvring::router
