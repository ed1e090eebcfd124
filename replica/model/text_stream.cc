#include "replica/model/text_stream.h"

#include <algorithm>

namespace kvring::replica {
namespace {

// The longest end of `text` that is a proper beginning of `stop`.
size_t PartialMatch(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

TextStream::Piece TextStream::Push(std::string_view token_bytes) {
  held_ += assembler_.Push(token_bytes);
  size_t first_end = std::string::npos;
  size_t first_begin = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    const size_t begin = held_.find(stop);
    if (begin != std::string::npos) {
      const size_t end = begin + stop.size();
      if (end < first_end || (end == first_end && begin < first_begin)) {
        first_end = end;
        first_begin = begin;
      }
    }
    hold = std::max(hold, PartialMatch(held_, stop));
  }
  if (first_end != std::string::npos) return {held_.substr(0, first_begin), true};
  Piece piece{held_.substr(0, held_.size() - hold), false};
  held_.erase(0, held_.size() - hold);
  return piece;
}

std::string TextStream::Finish() {
  std::string rest = std::move(held_);
  held_.clear();
  return rest + assembler_.Finish();
}

}  // namespace kvring::replica
