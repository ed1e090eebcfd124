// ReadTrace: a file of requests as a Trace. The forms, told apart by the first line:
//
//   JSONL   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]} Mooncake's;
//           "session_id" (string), "model" are optional. One hash id per block of 512 tokens; the last block
//           may be part-filled, or left out: then these tokens are nobody else's. Without "hash_ids" the
//           whole prompt is.
//   CSV     TIMESTAMP,ContextTokens,GeneratedTokens   Azure's: lengths only, so no two prompts share anything
//
// A first line {"kvring_trace": {"time_unit": "ms", "block_tokens": 512}} may say otherwise (time_unit: "ms",
// "s", "us"). Plain, .gz or .zst.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "sim/trace.h"

namespace kvring::sim {

/// InvalidArgument, naming file, line and field: a field is missing, of the wrong type or out of range; time
/// runs backwards; a hash id follows two different ones; the count of hash ids does not fit input_length.
/// `limit`: read at most that many requests; 0: all.
absl::StatusOr<Trace> ReadTrace(const std::string& path, int64_t limit);

}  // namespace kvring::sim
