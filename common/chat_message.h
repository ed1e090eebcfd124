// ChatMessage: one message of a chat as it came in, with where its user-written parts stand in the canonical
// prompt. Plain data.
#pragma once

#include <cstddef>
#include <string>

namespace kvring {

struct ChatMessage {
  std::string role;
  std::string content;  // text parts joined; empty for null
  std::string name;     // raw JSON of further fields, empty where absent
  std::string tool_calls;
  std::string tool_call_id;
  std::string opaque_type;   // type of the first part that is not text, empty when all is text
  size_t role_begin = 0;     // offset of `role` in the canonical bytes (common/canonical_prompt.h)
  size_t content_begin = 0;  // offset of `content` there
  size_t end = 0;            // offset behind the message's end of record
};

}  // namespace kvring
