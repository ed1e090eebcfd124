// ReadLogRecord: one JSON record of a request log as the audit needs it. The forms, which may be mixed:
//
//   a bare body          {"model", "messages" | "prompt" | "input", …}          OpenAI or Anthropic ("system"
//   beside) with what came back  {"request": {…}, "response": {… "usage"}, "timestamp", "tenant"}  and near
//   spellings: body,
//                        request_body, params, payload; response_body, output, result; ts, time, created_at
//                        …; either part may be a JSON text in a string, the response a list of chunks or SSE
//                        text
//   an entry of a HAR    {"startedDateTime", "request": {"postData": {"text"}}, "response": {"status",
//   "content"}}
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/ledger/reuse_audit.h"

namespace kvring::cli {

/// nullopt: a record without a prompt, or of a request that failed (status ≥ 400). InvalidArgument names the
/// field. `where` of the result is left empty.
absl::StatusOr<std::optional<router::LoggedRequest>> ReadLogRecord(std::string_view json);

}  // namespace kvring::cli
