// The prompt of an OpenAI body: messages and tools, walked once into canonical bytes (common/canonical_prompt.h) and, where
// the caller wants them, into ChatMessage values. Router and replica share this walk, so they agree on every byte.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/canonical_prompt.h"
#include "common/openai/api_error.h"

namespace kvring::openai {

struct ChatMessage {
  std::string role;
  std::string content;         // text parts joined; empty for null
  std::string name;            // raw JSON of further fields, empty where absent
  std::string tool_calls;
  std::string tool_call_id;
  std::string opaque_type;     // type of the first part that is not text, empty when all is text
  size_t role_begin = 0;       // offset of `role` in the canonical bytes
  size_t content_begin = 0;    // offset of `content` there
};

}  // namespace kvring::openai
