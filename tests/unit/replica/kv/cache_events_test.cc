#include "replica/kv/cache_events.h"

#include <gtest/gtest.h>

#include "replica/kv/block_manager.h"
#include "tests/unit/replica/kv/block_fixture.h"

namespace kvring::replica {
namespace {

CacheEvent Stored(uint64_t hash) { return {CacheEvent::Kind::kStored, {hash}, {}}; }

TEST(CacheEventsTest, Take_NumbersAreConsecutive) {
  CacheEventLog log(8);
  log.Append(Stored(1));
  log.Append(Stored(2));
  EXPECT_EQ(log.Take().first_sequence, 1u);
  log.Append(Stored(3));
  const CacheEventBatch batch = log.Take();
  EXPECT_EQ(batch.first_sequence, 3u);
  EXPECT_EQ(batch.events, std::vector<CacheEvent>{Stored(3)});
  EXPECT_EQ(log.Take().first_sequence, 4u);
}

TEST(CacheEventsTest, NobodyTakes_BufferDroppedAndTheGapShows) {
  CacheEventLog log(4);
  for (uint64_t i = 1; i <= 6; ++i) log.Append(Stored(i));
  EXPECT_EQ(log.dropped(), 4u);
  EXPECT_EQ(log.next_sequence(), 7u);
  const CacheEventBatch batch = log.Take();
  EXPECT_EQ(batch.first_sequence, 5u);
  EXPECT_EQ(batch.events, (std::vector<CacheEvent>{Stored(5), Stored(6)}));
}

TEST(CacheEventsTest, Eviction_LeavesFirst_ThenSnapshotHoldsTheRest) {
  BlockManager manager = MakeManager(8, 4);
  Warm(manager, Tokens(0, 12));
  const std::vector<CacheEvent> stored = manager.events().Take().events;
  ASSERT_EQ(stored.size(), 3u);
  manager.Evict(1);
  const std::vector<CacheEvent> removed = manager.events().Take().events;
  EXPECT_EQ(removed,
            (std::vector<CacheEvent>{{CacheEvent::Kind::kRemoved, stored[2].hash, stored[2].parent}}));
  EXPECT_EQ(manager.Snapshot(), (std::vector<CacheEvent>{stored[0], stored[1]}));
  manager.Clear();
  EXPECT_EQ(manager.events().Take().events, (std::vector<CacheEvent>{{CacheEvent::Kind::kCleared, {}, {}}}));
}

}  // namespace
}  // namespace kvring::replica
