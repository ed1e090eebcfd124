// UTF-8 pieces that arrive cut anywhere (token texts, relayed bytes): what is whole, what may still become
// whole, what never will. Follows Unicode 15 §3.9 D92 and the W3C practice for replacement: each maximal
// ill-formed part is one U+FFFD. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kvring {

/// Bytes at the end of `text` that are the start of a character not yet complete: 0 to 3. Ill-formed bytes do
/// not count.
size_t IncompleteUtf8Tail(std::string_view text);

/// Appends `text` to `out` with every ill-formed part replaced by U+FFFD; an incomplete tail counts as
/// ill-formed.
void AppendValidUtf8(std::string& out, std::string_view text);

bool IsValidUtf8(std::string_view text);
/// Bytes at the start of `text` that are whole characters.
size_t ValidUtf8Prefix(std::string_view text);

/// Turns byte pieces into text: each Push gives all characters that are certain by now; at most 3 bytes are
/// held back. "F0 9F" then "98 80" gives "" then the emoji (TOK-01); "C3" then " c" gives "" then U+FFFD " c"
/// (TOK-02).
class Utf8Assembler {
 public:
  /// The text that became certain with these bytes.
  std::string Push(std::string_view bytes);
  /// What is still held back, as U+FFFD; empty if nothing is.
  std::string Finish();
  bool holding() const { return !held_.empty(); }

 private:
  std::string held_;
};

}  // namespace kvring
