#include "router/events/kv_event_decoder.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/block_hash.h"
#include "router/events/msgpack_reader.h"

namespace kvring::router {
namespace {

using Kind = MsgpackReader::Kind;

// The fields of events in the order of the array layout, without the tag.
constexpr std::array<std::string_view, 9> kStored = {"block_hashes", "parent_block_hash", "token_ids",
                                                     "block_size",   "lora_id",           "medium",
                                                     "lora_name",    "extra_keys",        "group_idx"};
constexpr std::array<std::string_view, 3> kRemoved = {"block_hashes", "medium", "group_idx"};

class Decoder {
 public:
  explicit Decoder(std::string_view payload) : in_(payload) {}

  absl::StatusOr<KvEventBatch> Decode() {
    KvEventBatch batch;
    if (in_.Peek() == Kind::kMap) {
      for (size_t left = in_.TakeMap(); left > 0 && !in_.failed(); --left)
        in_.TakeString() == "events" ? TakeEvents(batch) : in_.Skip();
    } else {
      const size_t fields = in_.TakeArray();
      if (fields < 2) in_.Fail();
      in_.Skip();
      TakeEvents(batch);
      for (size_t i = 2; i < fields; ++i) in_.Skip();
    }
    if (in_.failed() || in_.Peek() != Kind::kEnd) {
      return absl::InvalidArgumentError(
          absl::StrCat("KV events: no batch of events, from offset ", in_.offset(), " on"));
    }
    return batch;
  }

 private:
  void TakeEvents(KvEventBatch& batch) {
    for (size_t left = in_.TakeArray(); left > 0 && !in_.failed(); --left) {
      KvEvent event;
      if (in_.Peek() == Kind::kMap ? TakeMapEvent(event) : TakeArrayEvent(event))
        batch.events.push_back(std::move(event));
    }
  }

  // False: an event of a kind that is not known here, skipped.
  bool TakeArrayEvent(KvEvent& event) {
    const size_t fields = in_.TakeArray();
    if (fields == 0) in_.Fail();
    const bool known = SetKind(in_.TakeString(), event);
    const std::span<const std::string_view> names = NamesOf(event.kind);
    for (size_t i = 0; i + 1 < fields && !in_.failed(); ++i)
      known&& i < names.size() ? TakeField(names[i], event) : in_.Skip();
    return known && Complete(event);
  }

  // msgspec writes the tag first.
  bool TakeMapEvent(KvEvent& event) {
    size_t fields = in_.TakeMap();
    if (fields == 0 || in_.TakeString() != "type") in_.Fail();
    const bool known = SetKind(in_.TakeString(), event);
    for (; fields > 1 && !in_.failed(); --fields) {
      const std::string_view name = in_.TakeString();
      known ? TakeField(name, event) : in_.Skip();
    }
    return known && Complete(event);
  }

  static bool SetKind(std::string_view tag, KvEvent& event) {
    if (tag == "BlockStored") event.kind = KvEvent::Kind::kStored;
    if (tag == "BlockRemoved") event.kind = KvEvent::Kind::kRemoved;
    return tag == "BlockStored" || tag == "BlockRemoved" || tag == "AllBlocksCleared";
  }

  static std::span<const std::string_view> NamesOf(KvEvent::Kind kind) {
    if (kind == KvEvent::Kind::kStored) return kStored;
    if (kind == KvEvent::Kind::kRemoved) return kRemoved;
    return {};
  }

  void TakeField(std::string_view name, KvEvent& event) {
    if (name == "block_hashes") return TakeHashes(event);
    if (name == "token_ids") return TakeTokens(event);
    if (name == "block_size") {
      event.block_tokens = static_cast<int32_t>(TakeBounded(1 << 20));
    } else if (name == "parent_block_hash") {
      if (!in_.TakeNil()) event.parent = TakeHash();
    } else if (name == "lora_id") {
      by_number_ = !in_.TakeNil();
      if (by_number_) in_.Skip();
    } else if (name == "lora_name") {
      if (!in_.TakeNil()) event.adapter = in_.TakeString();
    } else if (name == "medium") {
      if (!in_.TakeNil()) event.on_gpu = in_.TakeString() == "GPU";
    } else if (name == "group_idx") {
      if (!in_.TakeNil()) event.plain = TakeBounded(1 << 20) == 0 && event.plain;
    } else if (name == "extra_keys") {
      TakeExtraKeys(event);
    } else {
      in_.Skip();
    }
  }

  uint64_t TakeHash() {
    return in_.Peek() == Kind::kInteger ? in_.TakeInteger() : HashName(in_.TakeString());
  }

  void TakeHashes(KvEvent& event) {
    for (size_t left = in_.TakeArray(); left > 0 && !in_.failed(); --left) event.hashes.push_back(TakeHash());
  }

  void TakeTokens(KvEvent& event) {
    const size_t count = in_.TakeArray();
    event.tokens.reserve(count);
    for (size_t i = 0; i < count && !in_.failed(); ++i)
      event.tokens.push_back(static_cast<TokenId>(TakeBounded(std::numeric_limits<int32_t>::max())));
  }

  uint64_t TakeBounded(uint64_t most) {
    const uint64_t value = in_.TakeInteger();
    if (value > most) in_.Fail();
    return value;
  }

  // One entry per block: nil, or what else its hash was made of. The adapter's name is in it too, and is no
  // more than lora_name says.
  void TakeExtraKeys(KvEvent& event) {
    if (in_.TakeNil()) return;
    for (size_t blocks = in_.TakeArray(); blocks > 0 && !in_.failed(); --blocks) {
      if (in_.TakeNil()) continue;
      for (size_t keys = in_.TakeArray(); keys > 0 && !in_.failed(); --keys) {
        const bool adapter = in_.Peek() == Kind::kText && !event.adapter.empty();
        if (!adapter || in_.TakeString() != event.adapter) event.plain = false;
        if (!adapter) in_.Skip();
      }
    }
  }

  bool Complete(KvEvent& event) {
    if (std::exchange(by_number_, false) && event.adapter.empty()) event.plain = false;
    if (event.kind != KvEvent::Kind::kStored) return true;
    const size_t wanted = event.hashes.size() * static_cast<size_t>(event.block_tokens);
    if (event.block_tokens <= 0 || event.tokens.size() != wanted) in_.Fail();
    return true;
  }

  MsgpackReader in_;
  bool by_number_ = false;  // lora_id of the event under way
};

}  // namespace

absl::StatusOr<KvEventBatch> DecodeKvEvents(std::string_view payload) { return Decoder(payload).Decode(); }

}  // namespace kvring::router
