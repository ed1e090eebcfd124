#include "common/net/sse_scanner.h"

#include <cstring>

namespace kvring::net {
namespace {

constexpr std::string_view kBom = "\xEF\xBB\xBF";

// First CR or LF, or npos. LF is the common one and found by memchr; a CR before it is looked for only in
// that line.
size_t FindLineEnd(std::string_view bytes) {
  const size_t lf = bytes.find('\n');
  const size_t cr = bytes.substr(0, lf).find('\r');
  return cr == std::string_view::npos ? lf : cr;
}

}  // namespace

void SseScanner::Feed(std::string_view bytes, absl::FunctionRef<void(const SseEvent&)> on_event) {
  if (bom_seen_ < 3) bytes.remove_prefix(SkipStart(bytes));
  while (!bytes.empty()) {
    if (skip_lf_) {
      skip_lf_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = FindLineEnd(bytes);
    const std::string_view piece = bytes.substr(0, end);
    if (end == std::string_view::npos) {
      if (line_.size() + piece.size() > max_event_bytes_) too_large_ = true;
      if (!too_large_) line_.append(piece);
      if (too_large_ && line_.empty()) line_.push_back(':');  // the line goes on, its text does not matter
      break;
    }
    skip_lf_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      Line(piece, true, on_event);
    } else {
      if (!too_large_) line_.append(piece);
      Line(line_, false, on_event);
      line_.clear();
    }
  }
  KeepView();
}

// The BOM may be cut; bytes that turn out not to be one belong to the first line.
size_t SseScanner::SkipStart(std::string_view bytes) {
  size_t taken = 0;
  while (bom_seen_ < 3 && taken < bytes.size() && bytes[taken] == kBom[static_cast<size_t>(bom_seen_)]) {
    ++bom_seen_;
    ++taken;
  }
  if (bom_seen_ < 3 && taken < bytes.size()) {
    line_.assign(kBom.substr(0, static_cast<size_t>(bom_seen_)));
    bom_seen_ = 3;
  }
  return taken;
}

void SseScanner::Line(std::string_view line, bool whole, absl::FunctionRef<void(const SseEvent&)> on_event) {
  if (line.empty()) return Dispatch(on_event);
  in_event_ = true;
  if (too_large_) return;
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") {
    Data(value, whole);
  } else if (name == "event") {
    type_ = value;
  }
}

void SseScanner::Data(std::string_view value, bool whole) {
  if (!has_data_ && whole) {
    view_ = value;
    has_view_ = true;
    has_data_ = true;
    return;
  }
  KeepView();
  if (data_.size() + value.size() + 1 > max_event_bytes_) {
    too_large_ = true;
    return;
  }
  if (has_data_) data_.push_back('\n');
  data_.append(value);
  has_data_ = true;
}

void SseScanner::KeepView() {
  if (!has_view_) return;
  data_.assign(view_);
  has_view_ = false;
}

void SseScanner::Dispatch(absl::FunctionRef<void(const SseEvent&)> on_event) {
  if (too_large_) {
    ++oversized_events_;
  } else if (has_data_) {
    on_event({.data = has_view_ ? view_ : std::string_view(data_), .type = type_});
  }
  data_.clear();
  type_.clear();
  has_data_ = has_view_ = in_event_ = too_large_ = false;
}

}  // namespace kvring::net
