#include "router/gateway/body_splice.h"

#include "common/json_text.h"

namespace kvring::router {
namespace {

// Walks JSON text just far enough to tell where values end; the text was validated by the reader of the
// request.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  bool Take(char c) {
    SkipBlanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  size_t at() const { return at_; }
  void SkipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  // The raw text of a string without its quotes; false: no string here.
  bool TakeString(std::string_view& raw) {
    if (!Take('"')) return false;
    const size_t first = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return false;
    raw = text_.substr(first, at_ - first);
    ++at_;
    return true;
  }

  // Skips any value; brackets are counted, strings skipped whole.
  bool SkipValue() {
    int depth = 0;
    SkipBlanks();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        std::string_view ignored;
        if (!TakeString(ignored)) return false;
        if (depth == 0) return true;
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t'))
        return true;
      depth += c == '{' || c == '[' ? 1 : 0;
      if (c == '}' || c == ']') --depth;
      ++at_;
      if (depth == 0 && (c == '}' || c == ']')) return true;
    }
    return false;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<JsonSpan> FindTopLevelValue(std::string_view json, std::string_view key) {
  Walker walker(json);
  std::optional<JsonSpan> found;
  if (!walker.Take('{')) return std::nullopt;
  std::string_view name;
  while (walker.TakeString(name) && walker.Take(':')) {
    walker.SkipBlanks();
    const size_t first = walker.at();
    if (!walker.SkipValue()) return std::nullopt;
    if (name == key) found = JsonSpan{.offset = first, .size = walker.at() - first};
    if (!walker.Take(',')) break;
  }
  return found;
}

bool SpliceString(std::string& json, std::string_view key, std::string_view value) {
  const std::optional<JsonSpan> span = FindTopLevelValue(json, key);
  if (!span) return false;
  std::string quoted;
  AppendJsonString(quoted, value);
  json.replace(span->offset, span->size, quoted);
  return true;
}

void SetString(std::string& json, std::string_view key, std::string_view value) {
  if (SpliceString(json, key, value)) return;
  Walker walker(json);
  walker.Take('{');
  const size_t first = walker.at();
  std::string member;
  AppendJsonString(member, key);
  member += ':';
  AppendJsonString(member, value);
  if (!walker.Take('}')) member += ',';
  json.insert(first, member);
}

}  // namespace kvring::router
