#include "replica/model/jinja/text.h"

#include <algorithm>

namespace kvring::replica::jinja {

Text Text::FromUser(std::string bytes, size_t origin) {
  Text text(std::move(bytes));
  if (!text.bytes_.empty()) text.spans_.push_back({0, text.bytes_.size(), origin, true});
  return text;
}

Text Text::DerivedFromUser(std::string bytes, size_t origin_end) {
  Text text(std::move(bytes));
  if (!text.bytes_.empty()) text.spans_.push_back({0, text.bytes_.size(), origin_end, false});
  return text;
}

size_t Text::OriginEnd() const {
  size_t end = 0;
  for (const UserSpan& span : spans_)
    end = std::max(end, span.exact ? span.origin + (span.end - span.begin) : span.origin);
  return end;
}

void Text::Append(const Text& other) {
  const size_t shift = bytes_.size();
  bytes_ += other.bytes_;
  for (UserSpan span : other.spans_) {
    span.begin += shift;
    span.end += shift;
    spans_.push_back(span);
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text out(bytes_.substr(begin, end - begin));
  for (UserSpan span : spans_) {
    const size_t from = std::max(span.begin, begin);
    const size_t to = std::min(span.end, end);
    if (from >= to) continue;
    if (span.exact) span.origin += from - span.begin;
    out.spans_.push_back({from - begin, to - begin, span.origin, span.exact});
  }
  return out;
}

Text Text::Derive(std::string bytes) const {
  return trusted() ? Text(std::move(bytes)) : DerivedFromUser(std::move(bytes), OriginEnd());
}

}  // namespace kvring::replica::jinja
