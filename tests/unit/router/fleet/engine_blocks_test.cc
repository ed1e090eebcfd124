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

TEST(EngineBlocks, GapInTheSequence_NothingIsBelieved_UntilTheMissingCome) {
  EngineBlocks blocks(1000);
  blocks.Apply(0, {Epoch{1}, 1, Events(CacheEventKind::kStored, 100, 150)});
  const auto removed = Events(CacheEventKind::kRemoved, 140, 150);
  const auto later = Events(CacheEventKind::kStored, 300, 310);
  EXPECT_EQ(blocks.Apply(0, {Epoch{1}, 61, later}).wanted, 51u);
  EXPECT_EQ(blocks.Depth(0, Chain(100, 200)), 0u);
  EXPECT_EQ(blocks.View(0).state, EventsState::kMissing);
  EXPECT_EQ(blocks.Apply(0, {Epoch{1}, 51, removed}).fate, BatchFate::kApplied);
  EXPECT_EQ(blocks.Apply(0, {Epoch{1}, 61, later}).fate, BatchFate::kApplied);
  EXPECT_EQ(blocks.Depth(0, Chain(100, 200)), 40u);
  EXPECT_EQ(blocks.Depth(0, Chain(300, 400)), 10u);
  EXPECT_EQ(blocks.View(0).gaps, 1u);
  blocks.Apply(0, {Epoch{2}, 1, Events(CacheEventKind::kStored, 400, 401)});
  EXPECT_EQ(blocks.size(), 1u);
}

TEST(EngineBlocks, Resumed_WhatHangsOnTheUnknown_IsLeftOut) {
  EngineBlocks blocks(1000);
  const std::vector<CacheEvent> events = {{CacheEventKind::kStored, {1}, std::nullopt},
                                          {CacheEventKind::kStored, {2}, BlockHash{1}},
                                          {CacheEventKind::kStored, {9}, BlockHash{8}}};
  blocks.Apply(0, {.epoch = Epoch{1}, .first_sequence = 7, .events = events, .start = BatchStart::kResumes});
  EXPECT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks.View(0).state, EventsState::kPartial);
  const CacheEvent cleared{.kind = CacheEventKind::kCleared};
  blocks.Apply(0, {Epoch{1}, 10, {&cleared, 1}});
  EXPECT_EQ(blocks.View(0).state, EventsState::kWhole);
}

// Each number is a batch of its own: 1 stores a and b, 2 removes a, 3 clears, 4 stores c.
TEST(EngineBlocks, PFX_12_LostRepeatedReordered_NeverAPhantom) {
  constexpr uint64_t a = 11, b = 12, c = 13;
  const std::vector<std::vector<CacheEvent>> batches = {
      {},
      {{CacheEventKind::kStored, {a}, {}}, {CacheEventKind::kStored, {b}, BlockHash{a}}},
      {{CacheEventKind::kRemoved, {b}, {}}, {CacheEventKind::kRemoved, {a}, {}}},
      {{CacheEventKind::kCleared, {}, {}}},
      {{CacheEventKind::kStored, {c}, {}}}};
  const std::vector<std::vector<uint64_t>> orders = {{1, 2, 3, 4},    {1, 1, 2, 3, 4}, {1, 3, 2, 4},
                                                     {1, 4},          {1, 2, 1, 3, 4}, {1, 2, 3, 4, 1},
                                                     {1, 2, 3, 2, 4}, {2, 1},          {1, 3, 4, 2}};
  for (const auto& order : orders) {
    EngineBlocks blocks(1000);
    for (const uint64_t n : order)
      blocks.Apply(0, {.epoch = Epoch{1}, .first_sequence = n, .events = batches[n], .numbers = 1});
    const bool missing = blocks.View(0).state == EventsState::kMissing;
    EXPECT_EQ(blocks.Depth(0, {{a}}) + blocks.Depth(0, {{b}}), 0u);
    EXPECT_TRUE(missing || order.back() != 4 || blocks.Depth(0, {{c}}) == 1);
  }
  // The engine starts again: another life, numbers from 0.
  EngineBlocks blocks(1000);
  for (const uint64_t n : {1, 2, 3, 4})
    blocks.Apply(0, {.epoch = Epoch{1}, .first_sequence = n, .events = batches[n], .numbers = 1});
  EXPECT_EQ(blocks.Depth(0, {{c}}), 1u);
  EXPECT_EQ(
      blocks.Apply(0, {.epoch = Epoch{2}, .first_sequence = 0, .events = batches[1], .numbers = 1}).fate,
      BatchFate::kApplied);
  EXPECT_EQ(blocks.Depth(0, {{c}}), 0u);
  EXPECT_EQ(blocks.Depth(0, {{a}, {b}}), 2u);
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
