// PromptPlace: which part of a prompt an offset of its canonical bytes (common/canonical_prompt.h) is in.
// Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvring::router {

enum class PromptPart { kTools, kSystem, kUser, kAssistant, kToolResult, kOtherRole, kText };

/// "tools", "system", "user" …; kText ("text") is a prompt that is no chat.
std::string_view PartName(PromptPart part);

struct PromptPlace {
  PromptPart part = PromptPart::kText;
  int message = -1;          // from 0; -1: tools, or no chat
  size_t record_begin = 0;   // where the message, or the tools, begin
  size_t content_begin = 0;  // behind its role
  size_t record_end = 0;     // behind its end of record
};

/// `offset` < size. An end of record belongs to the record that it ends.
PromptPlace PlaceAt(std::string_view canonical, size_t offset);

/// Where the tools and the system messages at the front end: what the author of the application wrote. 0:
/// there are none.
size_t LeadingEnd(std::string_view canonical);

}  // namespace kvring::router
