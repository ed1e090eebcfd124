// ReadTrace: a file of requests as a Trace. The forms, told apart by the first line:
//
//   JSONL   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]} Mooncake's;
//           "session_id" (string) is optional. One hash id per block of 512 tokens; the last block may be
//           part-filled, or left out: then these tokens are nobody else's. Without "hash_ids" the whole
//           prompt is. "model", "tenant" (strings): equal ids under different ones are different content.
//           "parent": number of an earlier request, from 0, that must end first, and "delay" after its end;
//           then "timestamp" is not looked at.
//   CSV     TIMESTAMP,ContextTokens,GeneratedTokens   Azure's: lengths only, so no two prompts share anything
//
// Times are in milliseconds unless TraceReadOptions, or a first line {"kvring_trace": {"time_unit": "ms",
// "block_tokens": 512}}, says otherwise (time_unit: "ms", "s", "us"). Plain, .gz or .zst.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "sim/trace.h"

namespace kvring::sim {

struct TraceReadOptions {
  int64_t limit = 0;             // read at most that many requests; 0: all
  std::string time_unit = "ms";  // "ms", "s", "us"
};

/// InvalidArgument, naming file, line and field: a field is missing, of the wrong type or out of range; time
/// runs backwards; a hash id follows two different ones; the count of hash ids does not fit input_length.
absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceReadOptions& options);

}  // namespace kvring::sim
