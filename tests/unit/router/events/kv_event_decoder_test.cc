// Messages as msgspec 0.23 writes them for the structures of vLLM and SGLang (hex), and what is none.
#include "router/events/kv_event_decoder.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "common/block_hash.h"
#include "common/random.h"
#include "router/events/msgpack_reader.h"

namespace kvring::router {
namespace {

// [1.5, [["BlockStored",[11,12],null,[1…8],4,null,"GPU"], ["BlockRemoved",[b"\1"*32],null],
// ["AllBlocksCleared"]], 0]
constexpr char kArrays[] =
    "93cb3ff80000000000009398ab426c6f636b53746f726564920b0cc098010203040506070804c0a3475055c093ac426c6f636b52"
    "656d6f76656491c4200101010101010101010101010101010101010101010101010101010101010101c091b0416c6c426c6f636b"
    "73436c656172656400";
// {"ts":1.5,"events":[{"type":"BlockStored","block_hashes":[b"\7"*32,b"\10"*32],"parent_block_hash":b"\6"*32,
// "token_ids":[1,2,3,4],"block_size":2,"lora_id":null,"medium":"GPU","lora_name":null,"group_idx":0},
// {"type":"BlockRemoved","block_hashes":[b"\7"*32],"medium":"GPU"},{"type":"AllBlocksCleared"}],
// "data_parallel_rank":1}
constexpr char kMaps[] =
    "83a27473cb3ff8000000000000a66576656e74739389a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573"
    "92c4200707070707070707070707070707070707070707070707070707070707070707c420080808080808080808080808080808"
    "0808080808080808080808080808080808b1706172656e745f626c6f636b5f68617368c420060606060606060606060606060606"
    "0606060606060606060606060606060606a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964"
    "c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f6964780083a474797065ac426c6f636b52656d6f7665"
    "64ac626c6f636b5f68617368657391c4200707070707070707070707070707070707070707070707070707070707070707a66d65"
    "6469756da347505581a474797065b0416c6c426c6f636b73436c6561726564b2646174615f706172616c6c656c5f72616e6b01";

KvEventBatch Decode(const std::string& payload) {
  auto batch = DecodeKvEvents(payload);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() ? *std::move(batch) : KvEventBatch{};
}

TEST(KvEventDecoder, Arrays_AsSglangAndOlderVllmWriteThem) {
  const KvEventBatch batch = Decode(absl::HexStringToBytes(kArrays));
  ASSERT_EQ(batch.events.size(), 3u);
  const KvEvent& stored = batch.events[0];
  EXPECT_EQ(stored.kind, KvEvent::Kind::kStored);
  EXPECT_EQ(stored.hashes, (std::vector<uint64_t>{11, 12}));
  EXPECT_FALSE(stored.parent.has_value());
  EXPECT_EQ(stored.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(stored.block_tokens, 4);
  EXPECT_TRUE(stored.on_gpu && stored.plain);
  EXPECT_EQ(batch.events[1].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(batch.events[1].hashes, (std::vector<uint64_t>{HashName(std::string(32, '\1'))}));
  EXPECT_EQ(batch.events[2].kind, KvEvent::Kind::kCleared);
}

TEST(KvEventDecoder, Maps_AsNewerVllmWritesThem) {
  const KvEventBatch batch = Decode(absl::HexStringToBytes(kMaps));
  ASSERT_EQ(batch.events.size(), 3u);
  EXPECT_EQ(batch.events[0].hashes.size(), 2u);
  EXPECT_EQ(batch.events[0].parent, HashName(std::string(32, '\6')));
  EXPECT_EQ(batch.events[0].block_tokens, 2);
  EXPECT_TRUE(batch.events[0].on_gpu && batch.events[0].plain);
  EXPECT_EQ(batch.events[1].hashes[0], batch.events[0].hashes[0]);
}

// ["BlockStored",[5],null,[1,2],2,lora_id,medium,lora_name,extra_keys,group_idx] with the tail as given.
KvEvent StoredWith(const std::string& tail, char fields) {
  const std::string head =
      absl::HexStringToBytes("92cb3ff80000000000009100ab426c6f636b53746f7265649105c092010202");
  std::string payload = head;
  payload[11] = static_cast<char>(0x90 + fields);
  const KvEventBatch batch = Decode(payload + absl::HexStringToBytes(tail));
  return batch.events.empty() ? KvEvent{} : batch.events[0];
}

TEST(KvEventDecoder, WhatRoutingCannotUse_IsMarked) {
  EXPECT_TRUE(StoredWith("", 5).plain);          // nothing behind block_size
  EXPECT_FALSE(StoredWith("03c0", 7).plain);     // an adapter known by number only
  EXPECT_TRUE(StoredWith("03c0a161", 8).plain);  // … whose name follows: "a"
  EXPECT_EQ(StoredWith("03c0a161", 8).adapter, "a");
  EXPECT_FALSE(StoredWith("c0a3435055", 7).on_gpu);           // "CPU"
  EXPECT_FALSE(StoredWith("c0c0c09191a473616c74", 9).plain);  // salted
  EXPECT_TRUE(StoredWith("c0c0c091c0", 9).plain);             // extra keys, but none for this block
  EXPECT_TRUE(StoredWith("03c0a1619191a161", 9).plain);       // the adapter's name again
  EXPECT_FALSE(StoredWith("03c0a1619192a161a162", 9).plain);  // … and a salt
  EXPECT_FALSE(StoredWith("c0c0c0c001", 10).plain);           // the second cache group
  EXPECT_TRUE(StoredWith("c0c0c0c000a3657874", 11).plain);    // a field of the future
}

TEST(KvEventDecoder, UnknownEvent_IsSkipped_OthersAreRead) {
  const KvEventBatch batch = Decode(
      absl::HexStringToBytes("92cb3ff80000000000009292a34e65778101c091b0416c6c426c6f636b73436c6561726564"));
  ASSERT_EQ(batch.events.size(), 1u);
  EXPECT_EQ(batch.events[0].kind, KvEvent::Kind::kCleared);
}

TEST(KvEventDecoder, CutAnywhere_OrWithMoreBehind_IsAnErrorThatNamesTheOffset) {
  for (const char* hex : {kArrays, kMaps}) {
    const std::string whole = absl::HexStringToBytes(hex);
    for (size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(DecodeKvEvents(std::string_view(whole).substr(0, size)).ok()) << size;
    const auto more = DecodeKvEvents(whole + "x");
    ASSERT_FALSE(more.ok());
    EXPECT_NE(more.status().message().find(std::to_string(whole.size())), absl::string_view::npos);
  }
}

TEST(KvEventDecoder, LengthsThatLie_CostNothing) {
  // A batch with 2^32 - 1 events, hashes, tokens; a nested array of 100 levels; tokens that do not fill the
  // blocks.
  for (const char* hex :
       {"92cb3ff8000000000000ddffffffff", "92cb3ff80000000000009197ab426c6f636b53746f726564ddffffffff",
        "92cb3ff80000000000009195ab426c6f636b53746f7265649105c0ddffffffff02",
        "92cb3ff80000000000009195ab426c6f636b53746f7265649105c0910102"})
    EXPECT_FALSE(DecodeKvEvents(absl::HexStringToBytes(hex)).ok()) << hex;
  EXPECT_FALSE(DecodeKvEvents(std::string(100, '\x91')).ok());
}

TEST(KvEventDecoder, RandomEdits_NeverRunAway) {
  Random random(5);
  const std::string originals[] = {absl::HexStringToBytes(kArrays), absl::HexStringToBytes(kMaps)};
  for (int i = 0; i < 20'000; ++i) {
    std::string payload = originals[i % 2];
    for (int edits = 0; edits < 1 + i % 4; ++edits)
      payload[random.Below(payload.size())] = static_cast<char>(random.Below(256));
    const auto batch = DecodeKvEvents(payload);
    if (batch.ok()) {
      EXPECT_LE(batch->events.size(), payload.size());
    }
  }
}

TEST(MsgpackReader, Integers_OfEveryForm) {
  const auto take = [](const char* hex) {
    const std::string text = absl::HexStringToBytes(hex);
    MsgpackReader reader(text);
    const uint64_t value = reader.TakeInteger();
    EXPECT_FALSE(reader.failed()) << hex;
    EXPECT_EQ(reader.Peek(), MsgpackReader::Kind::kEnd) << hex;
    return static_cast<int64_t>(value);
  };
  EXPECT_EQ(take("7f"), 127);
  EXPECT_EQ(take("e0"), -32);
  EXPECT_EQ(take("ccff"), 255);
  EXPECT_EQ(take("cd1234"), 0x1234);
  EXPECT_EQ(take("ce12345678"), 0x12345678);
  EXPECT_EQ(take("cfffffffffffffffff"), -1);
  EXPECT_EQ(take("d080"), -128);
  EXPECT_EQ(take("d18000"), -32768);
  EXPECT_EQ(take("d2ffffffff"), -1);
  EXPECT_EQ(take("d38000000000000000"), INT64_MIN);
}

}  // namespace
}  // namespace kvring::router
