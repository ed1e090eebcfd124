#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "router/ledger/divergence.h"

namespace kvring::router {
namespace {

struct ClassText {
  std::string_view name;
  std::string_view fix;
};

constexpr std::array<ClassText, kDivergenceClasses> kTexts = {{
    {"timestamp", "Move the time behind everything that stays, or round it to the day."},
    {"date", "Move the date behind everything that stays."},
    {"uuid", "Leave the id out of the prompt, or put it at its end."},
    {"counter", "Leave the counter out of the prompt, or put it at its end."},
    {"random nonce", "Leave the random value out of the prompt, or put it at its end."},
    {"tools added or removed",
     "Send the same list of tools in every request and restrict the choice by tool_choice."},
    {"tools reordered", "Sort the tools by name before they are sent."},
    {"JSON key order", "Write JSON with sorted keys."},
    {"whitespace", "Write the text with the same white space each time: one serializer, no pretty printing."},
    {"variable-first arrangement", "Put the text that stays first and what changes behind it."},
    {"documents reordered", "Put documents in a fixed order (by id) instead of by rank."},
    {"history truncation", "Cut the history rarely and by much, or keep its start and summarise at the end."},
    {"user's own value in the system prompt",
     "Move what belongs to one user out of the system prompt, into the first user message."},
    {"generation prompt / reasoning header",
     "Use a template that renders past turns with the header the prompt ended with."},
    {"other text", "Keep the text before this place the same, or move what changes behind what stays."},
}};

char ShapeOfChar(char c) {
  if (absl::ascii_isdigit(c)) return '9';
  if (absl::ascii_isupper(c)) return 'A';
  if (absl::ascii_islower(c) || static_cast<unsigned char>(c) >= 0x80) return 'a';
  if (absl::ascii_isspace(c) || absl::ascii_iscntrl(c)) return ' ';
  return c;
}

}  // namespace

std::string_view ClassName(DivergenceClass c) { return kTexts[static_cast<size_t>(c)].name; }
std::string_view FixOf(DivergenceClass c) { return kTexts[static_cast<size_t>(c)].fix; }

std::string ShapeOf(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  constexpr size_t kMaxPlainRun = 8;
  std::string shape;
  for (size_t i = 0; i < text.size() && shape.size() < kMaxBytes;) {
    const char c = ShapeOfChar(text[i]);
    size_t end = i;
    while (end < text.size() && ShapeOfChar(text[end]) == c) ++end;
    if (end - i > kMaxPlainRun) {
      absl::StrAppend(&shape, std::string(1, c), "{", end - i, "}");
    } else {
      shape.append(end - i, c);
    }
    i = end;
  }
  if (shape.size() > kMaxBytes) shape.resize(kMaxBytes);
  return shape;
}

}  // namespace kvring::router
