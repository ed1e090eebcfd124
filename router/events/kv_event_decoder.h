// One message of vLLM's or SGLang's KV event publisher (MessagePack by msgspec), as plain values. Both
// layouts that are in use: structures as arrays by position (SGLang; vLLM up to 0.11), as maps by name (newer
// vLLM):
//   batch    [ts, [event…], rank?]                       {"ts":…,"events":[…],"data_parallel_rank":…}
//   stored   ["BlockStored", hashes, parent, token_ids, block_size, lora_id, medium, lora_name, extra_keys,
//            group_idx]                                  {"type":"BlockStored","block_hashes":…}
//   removed  ["BlockRemoved", hashes, medium, group_idx] {"type":"BlockRemoved",…}
//   cleared  ["AllBlocksCleared"]                        {"type":"AllBlocksCleared"}
// Fields behind the known ones and unknown names are skipped, so newer engines are read. Hashes are integers
// or bytes; either becomes 64 bits. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace kvring::router {

struct KvEvent {
  enum class Kind { kStored, kRemoved, kCleared };
  Kind kind = Kind::kCleared;
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  // of the first block; absent: it begins a prompt
  std::vector<TokenId> tokens;     // of all the blocks
  int32_t block_tokens = 0;
  std::string adapter;  // lora_name
  // What routing can use: blocks on the GPU, of the first cache group, that depend on nothing but the tokens
  // and the named adapter (no salt, no image, no adapter known by number only).
  bool on_gpu = true;
  bool plain = true;
};

struct KvEventBatch {
  std::vector<KvEvent> events;
};

/// Errors: InvalidArgument, with the offset in the payload.
absl::StatusOr<KvEventBatch> DecodeKvEvents(std::string_view payload);

}  // namespace kvring::router
