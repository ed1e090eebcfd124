// Internal to common/openai: the simdjson side of reading request bodies: messages and tools are walked once,
// by router and replica alike, so they agree on every canonical byte. Not for other rooms (it shows simdjson
// types).
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/canonical_prompt.h"
#include "common/chat_message.h"
#include "common/openai/api_error.h"

namespace kvring::openai {

namespace json = simdjson::ondemand;

/// The error of a failed read of field `param`.
ApiError JsonError(simdjson::error_code error, std::string_view param);

/// The text of any value as it stands in the body, without white space around it.
simdjson::error_code RawJson(json::value value, std::string_view& raw);

/// Walks `messages` into canonical bytes and, if `messages_out` is not null, into values.
std::optional<ApiError> WalkMessages(json::value value, CanonicalPrompt& canonical,
                                     std::vector<ChatMessage>* messages_out);
/// Adds a `system` field that stands beside the messages as a message of that role; null is nothing.
std::optional<ApiError> WalkSystem(json::value value, CanonicalPrompt& canonical);
/// Adds `tools` (raw JSON) to the canonical bytes; null is nothing. The raw text is stored in `raw_out` if
/// not null.
std::optional<ApiError> WalkTools(json::value value, CanonicalPrompt& canonical, std::string* raw_out);

/// A padded document over `body`, in this thread's parser. The document is valid until the next call in this
/// thread.
simdjson::error_code OpenDocument(std::string& body, json::document& document);

}  // namespace kvring::openai
