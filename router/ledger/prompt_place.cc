#include "router/ledger/prompt_place.h"

#include <algorithm>

#include "common/canonical_prompt.h"

namespace kvring::router {
namespace {

PromptPart PartOfRole(std::string_view role) {
  if (role == "system" || role == "developer") return PromptPart::kSystem;
  if (role == "user") return PromptPart::kUser;
  if (role == "assistant") return PromptPart::kAssistant;
  if (role == "tool" || role == "function") return PromptPart::kToolResult;
  return PromptPart::kOtherRole;
}

// The record that begins at `begin`; `message` is the number it has if it is a message.
PromptPlace RecordAt(std::string_view canonical, size_t begin, int message) {
  PromptPlace place{.record_begin = begin, .content_begin = begin};
  const size_t end = canonical.find(CanonicalPrompt::kEndOfRecord, begin);
  place.record_end = end == std::string_view::npos ? canonical.size() : end + 1;
  const size_t role_end = canonical.find(CanonicalPrompt::kEndOfRole, begin);
  if (role_end < place.record_end) {
    place.part = PartOfRole(canonical.substr(begin, role_end - begin));
    place.content_begin = role_end + 1;
    place.message = message;
  } else if (end != std::string_view::npos) {
    place.part = PromptPart::kTools;
  }
  return place;
}

}  // namespace

std::string_view PartName(PromptPart part) {
  switch (part) {
    case PromptPart::kTools:
      return "tools";
    case PromptPart::kSystem:
      return "system";
    case PromptPart::kUser:
      return "user";
    case PromptPart::kAssistant:
      return "assistant";
    case PromptPart::kToolResult:
      return "tool";
    case PromptPart::kOtherRole:
      return "other role";
    case PromptPart::kText:
      return "text";
  }
  return "text";
}

PromptPlace PlaceAt(std::string_view canonical, size_t offset) {
  PromptPlace place = RecordAt(canonical, 0, 0);
  while (place.record_end <= offset && place.record_end < canonical.size())
    place = RecordAt(canonical, place.record_end, place.message + 1);
  return place;
}

size_t LeadingEnd(std::string_view canonical) {
  size_t end = 0;
  while (end < canonical.size()) {
    const PromptPlace place = RecordAt(canonical, end, 0);
    if (place.part != PromptPart::kTools && place.part != PromptPart::kSystem) break;
    end = place.record_end;
  }
  return end;
}

}  // namespace kvring::router
