#include "router/ledger/structure_change.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/block_hash.h"
#include "common/canonical_prompt.h"
#include "common/json_normal.h"
#include "router/ledger/matched_runs.h"

namespace kvring::router {
namespace {

constexpr size_t kMaxHeaderBytes = 128;
constexpr size_t kMaxOpenBrackets = 8;
constexpr size_t kMinCutRunBytes = 1024;

std::string_view Text(std::string_view text, ByteSpan span) { return text.substr(span.begin, span.length()); }

bool SameElements(std::vector<std::string> x, std::vector<std::string> y) {
  std::ranges::sort(x);
  std::ranges::sort(y);
  return x == y;
}

// The first "name" of each tool in normal form.
std::vector<std::string> Names(const std::vector<std::string>& tools) {
  constexpr std::string_view kKey = "\"name\":\"";
  std::vector<std::string> names;
  for (const std::string& tool : tools) {
    const size_t key = tool.find(kKey);
    const size_t begin = key == std::string::npos ? 0 : key + kKey.size();
    names.push_back(tool.substr(begin, tool.find('"', begin) - begin));
  }
  return names;
}

// The class of two JSON texts of equal content, nullopt for different content. `moved`: elements of an array
// came in another order.
std::optional<DivergenceClass> SameJson(std::string_view x, std::string_view y, DivergenceClass moved) {
  const auto p = NormalJson(x);
  const auto q = NormalJson(y);
  if (!p || !q) return std::nullopt;
  if (*p == *q)
    return WithoutJsonSpace(x) == WithoutJsonSpace(y) ? DivergenceClass::kWhitespace
                                                      : DivergenceClass::kKeyOrder;
  const auto elements = NormalJsonElements(x);
  const auto others = NormalJsonElements(y);
  if (elements && others && SameElements(*elements, *others)) return moved;
  return std::nullopt;
}

// Of the brackets that are open at `end`, the places, outermost first.
std::vector<size_t> OpenBrackets(std::string_view text, size_t begin, size_t end) {
  std::vector<size_t> open;
  bool in_string = false;
  for (size_t i = begin; i < end; ++i) {
    const char c = text[i];
    if (c == '"' && !open.empty()) in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '{' || c == '[') open.push_back(i);
    if ((c == '}' || c == ']') && !open.empty()) open.pop_back();
  }
  if (end < text.size() && (text[end] == '{' || text[end] == '[')) open.push_back(end);
  return open;
}

ByteSpan ToolsOf(std::string_view prompt) {
  const PromptPlace first = PlaceAt(prompt, 0);
  return {0, first.part == PromptPart::kTools ? first.record_end : 0};
}

std::string_view WithoutRecordEnd(std::string_view record) { return record.substr(0, record.size() - 1); }

}  // namespace

std::optional<StructureChange> HeaderChange(std::string_view a, std::string_view b, size_t parting) {
  constexpr std::string_view kMarks("<[#:|\n\0", 7);
  const std::string_view header = a.substr(parting);
  const bool marked = header.find_first_of(kMarks) != std::string_view::npos;
  if (header.size() > kMaxHeaderBytes || !marked || b.size() <= a.size() || !b.ends_with(header))
    return std::nullopt;
  return StructureChange{DivergenceClass::kPromptHeader, {parting, a.size()}, {parting, parting}};
}

std::optional<StructureChange> ToolsChange(std::string_view a, std::string_view b, size_t parting) {
  const ByteSpan earlier = ToolsOf(a);
  const ByteSpan now = ToolsOf(b);
  if (parting >= std::max(earlier.end, now.end)) return std::nullopt;
  StructureChange change{DivergenceClass::kToolsChanged, earlier, now};
  if (earlier.length() == 0 || now.length() == 0) return change;
  const std::string_view x = WithoutRecordEnd(Text(a, earlier));
  const std::string_view y = WithoutRecordEnd(Text(b, now));
  if (const auto same = SameJson(x, y, DivergenceClass::kToolsReordered)) {
    change.cause = *same;
    change.same_bytes = now.end - parting;
    return change;
  }
  const auto tools = NormalJsonElements(x);
  const auto others = NormalJsonElements(y);
  if (!tools || !others || SameElements(Names(*tools), Names(*others))) return std::nullopt;
  return change;
}

std::optional<StructureChange> JsonChange(std::string_view a, std::string_view b, size_t parting) {
  const PromptPlace place = PlaceAt(b, parting);
  const std::vector<size_t> open = OpenBrackets(b, place.content_begin, parting);
  for (size_t i = 0; i < std::min(open.size(), kMaxOpenBrackets); ++i) {
    const size_t begin = open[i];
    const ByteSpan earlier{begin, JsonEnd(a, begin)};
    const ByteSpan now{begin, JsonEnd(b, begin)};
    if (earlier.end == std::string_view::npos || now.end == std::string_view::npos) continue;
    const auto same = SameJson(Text(a, earlier), Text(b, now), DivergenceClass::kDocumentsReordered);
    if (same) return StructureChange{*same, earlier, now, now.end - parting};
  }
  return std::nullopt;
}

std::optional<StructureChange> HistoryCut(std::string_view a, std::string_view b, size_t parting) {
  const PromptPlace place = PlaceAt(b, parting);
  if (place.message < 0 || place.record_begin < LeadingEnd(a) || place.record_end == b.size())
    return std::nullopt;
  const size_t begin = place.record_begin;
  const size_t one_for_one = PlaceAt(a, begin).record_end;  // a message that was only written otherwise
  for (const size_t kept : {begin, place.record_end}) {
    const size_t length = PlaceAt(b, kept).record_end - kept;
    const std::string record =
        std::string(1, CanonicalPrompt::kEndOfRecord) + std::string(b.substr(kept, length));
    const size_t found = a.find(record, begin);
    if (found == std::string_view::npos) continue;
    const size_t again = found + 1;
    if (kept > begin && again == one_for_one) continue;
    const size_t same = CommonPrefix(a.substr(again), b.substr(kept));
    if (again + same < a.size() && same < kMinCutRunBytes) continue;
    return StructureChange{DivergenceClass::kHistoryTruncated, {begin, again}, {begin, kept}};
  }
  return std::nullopt;
}

namespace {

struct Line {
  uint64_t key = 0;
  size_t bytes = 0;
  friend bool operator==(const Line& x, const Line& y) { return x.key == y.key; }
};

// What makes a line: without white space around it and without digits near its start.
uint64_t LineKey(std::string_view line) {
  constexpr size_t kNumberedBytes = 24;
  std::string key;
  for (size_t i = 0; i < line.size(); ++i)
    if (i >= kNumberedBytes || !absl::ascii_isdigit(line[i])) key += line[i];
  const auto stripped = absl::StripAsciiWhitespace(key);
  return HashName({stripped.data(), stripped.size()});
}

std::vector<Line> LongLines(std::string_view text) {
  constexpr size_t kMinLineBytes = 24;
  std::vector<Line> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() >= kMinLineBytes) lines.push_back({LineKey(line), line.size()});
  }
  return lines;
}

// Those of `lines` that `others` has too, in order.
std::vector<Line> Shared(const std::vector<Line>& lines, std::vector<Line> others) {
  std::vector<Line> shared;
  std::ranges::sort(others, {}, &Line::key);
  for (const Line& line : lines)
    if (std::ranges::binary_search(others, line.key, {}, &Line::key)) shared.push_back(line);
  return shared;
}

size_t Bytes(const std::vector<Line>& lines) {
  size_t bytes = 0;
  for (const Line& line : lines) bytes += line.bytes;
  return bytes;
}

}  // namespace

std::optional<StructureChange> DocumentsMoved(std::string_view a, std::string_view b, size_t parting) {
  const PromptPlace place = PlaceAt(b, parting);
  const size_t line = b.substr(0, parting).rfind('\n');
  const size_t begin =
      line == std::string_view::npos ? place.content_begin : std::max(line + 1, place.content_begin);
  const ByteSpan earlier{begin, PlaceAt(a, place.record_begin).record_end};
  const ByteSpan now{begin, place.record_end};
  if (parting >= earlier.end) return std::nullopt;
  const std::vector<Line> x = LongLines(Text(a, earlier));
  const std::vector<Line> y = LongLines(Text(b, now));
  const std::vector<Line> from_a = Shared(x, y);
  const std::vector<Line> from_b = Shared(y, x);
  const bool same_lines = 5 * Bytes(from_a) >= 4 * Bytes(x) && 5 * Bytes(from_b) >= 4 * Bytes(y);
  if (from_b.size() < 2 || !same_lines || from_a == from_b) return std::nullopt;
  return StructureChange{DivergenceClass::kDocumentsReordered, earlier, now, Bytes(from_b)};
}

}  // namespace kvring::router
