#include "common/utf8.h"

#include <algorithm>
#include <cstdint>

namespace kvring {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What stands at the start of `text` (not empty): `length` bytes that are one character, an ill-formed part
// to be replaced as a whole, or the beginning of a character whose end is not there.
struct Piece {
  enum Kind { kCharacter, kIllFormed, kIncomplete } kind;
  size_t length;
};

// Number of bytes of a character by its first byte, and the range of its second byte (D92, table 3-7).
struct Lead {
  size_t length;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead LeadOf(uint8_t first) {
  if (first < 0x80) return {1};
  if (first >= 0xC2 && first <= 0xDF) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first >= 0xE1 && first <= 0xEF) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  if (first >= 0xF1 && first <= 0xF3) return {4};
  return {0};
}

Piece First(std::string_view text) {
  const Lead lead = LeadOf(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {Piece::kIllFormed, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i >= text.size()) return {Piece::kIncomplete, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Piece::kIllFormed, i};
  }
  return {Piece::kCharacter, lead.length};
}

}  // namespace

size_t IncompleteUtf8Tail(std::string_view text) {
  const size_t most = std::min<size_t>(3, text.size());
  for (size_t length = 1; length <= most; ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    const bool continuation = (static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80;
    if (continuation) continue;
    const Piece piece = First(tail);
    return piece.kind == Piece::kIncomplete && piece.length == length ? length : 0;
  }
  return 0;
}

void AppendValidUtf8(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const Piece piece = First(text);
    if (piece.kind == Piece::kCharacter) {
      out.append(text.substr(0, piece.length));
    } else {
      out.append(kReplacement);
    }
    text.remove_prefix(piece.length);
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    const Piece piece = First(text.substr(valid));
    if (piece.kind != Piece::kCharacter) break;
    valid += piece.length;
  }
  return valid;
}

bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

std::string Utf8Assembler::Push(std::string_view bytes) {
  held_.append(bytes);
  const size_t tail = IncompleteUtf8Tail(held_);
  std::string out;
  AppendValidUtf8(out, std::string_view(held_).substr(0, held_.size() - tail));
  held_.erase(0, held_.size() - tail);
  return out;
}

std::string Utf8Assembler::Finish() {
  std::string out;
  AppendValidUtf8(out, held_);
  held_.clear();
  return out;
}

}  // namespace kvring
