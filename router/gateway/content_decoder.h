// Taking a Content-Encoding off a request body, so that it can be read and routed; what comes out is bounded.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/openai/api_error.h"

namespace kvring::router {

/// Replaces `body` by its decoded bytes. gzip (also x-gzip) and zstd; "identity" is nothing to do. Errors:
/// 415 for any other or several codings, 413 when more than `max_bytes` come out (memory stays within it),
/// 400 for broken data.
std::optional<openai::ApiError> DecodeContent(std::string_view coding, size_t max_bytes, std::string& body);

}  // namespace kvring::router
