// The host tier's slots in memory and in a file: what comes back is what was saved, or nothing.
#include "replica/model/host_block_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/random.h"

namespace kvring::replica {
namespace {

using kernels::KvPool;

const kernels::KvShape kShape{2, 3, 8, 16, 6, kernels::KvType::kBf16};

StoredBlock What(uint64_t hash) {
  StoredBlock what{{hash}, {hash - 1}, hash * 3, {{5}, 6}, static_cast<int32_t>(hash % 7), {}};
  for (int i = 0; i < kShape.block_size; ++i) what.tokens.push_back(static_cast<TokenId>(hash * 100) + i);
  return what;
}

std::vector<std::byte> Bytes(const KvPool& pool, int block) {
  std::vector<std::byte> bytes(static_cast<size_t>(kShape.block_bytes()));
  pool.ReadBlock(BlockId{block}, bytes.data());
  return bytes;
}

class HostBlockStoreTest : public testing::TestWithParam<bool> {
 protected:
  HostBlockStoreTest() {
    Random random(1);
    for (int block = 0; block < kShape.num_blocks; ++block) {
      std::vector<std::byte> bytes(static_cast<size_t>(kShape.block_bytes()));
      for (std::byte& b : bytes) b = static_cast<std::byte>(random.Next());
      pool_.WriteBlock(BlockId{block}, bytes.data());
    }
    std::string name = testing::TempDir() + "/kvring-tier-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~HostBlockStoreTest() override { std::filesystem::remove_all(directory_); }

  HostBlockStoreOptions Options(uint64_t fingerprint = 77) const {
    return {1 << 20, GetParam() ? directory_ : "", fingerprint};
  }
  std::unique_ptr<HostBlockStore> Open(uint64_t fingerprint = 77) {
    auto store = HostBlockStore::Open(pool_, Options(fingerprint));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  std::string file() const { return directory_ + "/kv-blocks"; }

  void FlipByte(int64_t offset) {
    std::fstream file(this->file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const int byte = file.get();
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 1));
  }

  KvPool pool_{kShape};
  std::string directory_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, HostBlockStoreTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "File" : "Memory"; });

TEST_P(HostBlockStoreTest, SavedBlocks_ComeBackBitForBit) {
  const auto store = Open();
  ASSERT_GE(store->slots(), 20);
  store->Save(BlockId{0}, 3, What(10));
  store->Save(BlockId{1}, 19, What(11));
  const auto first = Bytes(pool_, 0);
  const auto second = Bytes(pool_, 1);
  ASSERT_TRUE(store->Load(3, What(10), BlockId{4}));
  ASSERT_TRUE(store->Load(19, What(11), BlockId{0}));
  EXPECT_EQ(Bytes(pool_, 4), first);
  EXPECT_EQ(Bytes(pool_, 0), second);
}

TEST_P(HostBlockStoreTest, EmptyForgottenOrOtherBlock_IsNotLoaded) {
  const auto store = Open();
  EXPECT_FALSE(store->Load(0, What(10), BlockId{0}));
  store->Save(BlockId{0}, 0, What(10));
  EXPECT_FALSE(store->Load(0, What(11), BlockId{0}));
  StoredBlock other = What(10);
  other.check ^= 1;
  EXPECT_FALSE(store->Load(0, other, BlockId{0}));
  EXPECT_TRUE(store->Load(0, What(10), BlockId{0}));
  store->Forget(0);
  EXPECT_FALSE(store->Load(0, What(10), BlockId{0}));
}

TEST_P(HostBlockStoreTest, LessThanABlock_IsRefused) {
  HostBlockStoreOptions options = Options();
  options.bytes = 4096;
  EXPECT_EQ(HostBlockStore::Open(pool_, options).status().code(), absl::StatusCode::kInvalidArgument);
}

class HostBlockFileTest : public HostBlockStoreTest {};
INSTANTIATE_TEST_SUITE_P(Kinds, HostBlockFileTest, testing::Values(true));

TEST_P(HostBlockFileTest, OpenedAgain_HoldsWhatWasSaved_TheOldestFirst) {
  uint64_t key = 0;
  {
    const auto store = Open();
    key = store->key();
    for (const int slot : {5, 2, 9}) store->Save(BlockId{slot % 6}, slot, What(10 + slot));
    store->Save(BlockId{0}, 7, What(99));
    store->Forget(7);
  }
  const auto store = Open();
  EXPECT_EQ(store->key(), key);
  const auto restored = *store->Restore();
  ASSERT_EQ(restored.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(restored[i].slot, (std::array{5, 2, 9}[i]));
    EXPECT_EQ(restored[i].block, What(10 + restored[i].slot));
  }
  const auto original = Bytes(pool_, 2);
  EXPECT_TRUE(store->Load(2, What(12), BlockId{5}));
  EXPECT_EQ(Bytes(pool_, 5), original);
}

// Any one byte of a slot: the header's fields and tokens, or the payload.
TEST_P(HostBlockFileTest, DamagedByte_IsFoundOut) {
  const auto slot_start = [](int slot) { return 4096 + int64_t{slot} * (4096 + 4096); };
  ASSERT_LE(kShape.block_bytes(), 4096);
  for (const int64_t at : {0, 8, 16, 24, 40, 60, 80, 95, 96, 100, 159, 4096, 4097, 4096 + 3071}) {
    {
      const auto store = Open();
      store->Save(BlockId{1}, 1, What(20));
      store->Save(BlockId{2}, 2, What(21));
    }
    FlipByte(slot_start(1) + at);
    const auto store = Open();
    EXPECT_FALSE(store->Load(1, What(20), BlockId{0})) << at;
    EXPECT_TRUE(store->Load(2, What(21), BlockId{0})) << at;
    EXPECT_EQ(store->Restore()->size(), at < 4096 ? 1u : 2u) << at;  // of a payload only Load can tell
  }
}

TEST_P(HostBlockFileTest, TornFile_OtherModel_AndStrangers_BeginAnew) {
  { Open()->Save(BlockId{1}, 1, What(20)); }
  EXPECT_TRUE(Open(78)->Restore()->empty());
  EXPECT_TRUE(Open(77)->Restore()->empty());  // the other model's key is in the file now
  { Open()->Save(BlockId{1}, 1, What(20)); }
  std::filesystem::resize_file(file(), 3000);
  EXPECT_TRUE(Open()->Restore()->empty());
  std::ofstream(file()) << "something else";
  EXPECT_TRUE(Open()->Restore()->empty());
}

TEST_P(HostBlockFileTest, SecondProcessOrNoDirectory_IsAnErrorThatNamesTheFile) {
  const auto store = Open();
  const absl::Status taken = HostBlockStore::Open(pool_, Options()).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(taken.message().find(file()), std::string::npos) << taken;
  const absl::Status nowhere = HostBlockStore::Open(pool_, {1 << 20, "/no/such/place", 1}).status();
  EXPECT_NE(nowhere.message().find("/no/such/place/kv-blocks"), std::string::npos) << nowhere;
}

TEST_P(HostBlockFileTest, IsReadableByItsOwnerAlone) {
  Open();
  EXPECT_EQ(std::filesystem::status(file()).permissions() & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace kvring::replica
