// Request logs as a stream of JSON records: JSONL, a JSON array, HAR, or records spread over lines; plain,
// .gz or .zst. Memory holds one record at a time. A line may have 64 MiB.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvring::cli {

/// The files themselves and, of folders, every file in them with a name of a log (.jsonl .ndjson .json .har
/// .log .txt, each also .gz or .zst), sorted by path. NotFound names a path that is not there or has none.
absl::StatusOr<std::vector<std::string>> LogFiles(const std::vector<std::string>& paths);

/// One record and the line it begins in.
using RecordSink = std::function<void(std::string_view record, int64_t line)>;

/// Gives every record of the file. An error ends the file: it cannot be read, is damaged, or a record has no
/// end; it names file and line.
absl::Status ReadLog(const std::string& path, const RecordSink& sink);

}  // namespace kvring::cli
