// TextStream: token bytes to the text of one choice. Characters cut over tokens come whole (TOK-01, TOK-02),
// and text that may be the start of a stop string is held back until it is certain (SMP-01). Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/utf8.h"

namespace kvring::replica {

class TextStream {
 public:
  /// Stop strings are not empty; the one that is complete first ends the text, the longest if several are at
  /// once.
  explicit TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  struct Piece {
    std::string text;      // new text to send
    bool stopped = false;  // a stop string is complete; it and what follows are not part of the text
  };

  Piece Push(std::string_view token_bytes);
  /// What is still held back when the answer ends by itself.
  std::string Finish();

 private:
  std::vector<std::string> stops_;
  Utf8Assembler assembler_;
  std::string held_;
};

}  // namespace kvring::replica
