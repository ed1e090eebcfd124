// Text: a string that knows which of its bytes a user wrote and where they stand in the canonical prompt. A
// chat template is trusted, the messages are not: control tokens count only in trusted bytes (TOK-05), and
// token blocks are mapped to canonical bytes by the spans. Every operation of the template language carries
// spans along; where it cannot (replace, upper, tojson) the result is untrusted as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvring::replica::jinja {

/// Bytes [begin, end) came from a user. `origin`: canonical offset of byte `begin` if `exact`; else the
/// canonical offset at which everything that the span depends on has been seen.
struct UserSpan {
  size_t begin = 0;
  size_t end = 0;
  size_t origin = 0;
  bool exact = false;
};

class Text {
 public:
  Text() = default;
  /// Trusted.
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  /// Written by a user, standing at `origin` in the canonical prompt.
  static Text FromUser(std::string bytes, size_t origin);
  /// Made from user bytes that end at `origin_end`, no longer byte for byte.
  static Text DerivedFromUser(std::string bytes, size_t origin_end);

  const std::string& bytes() const { return bytes_; }
  const std::vector<UserSpan>& spans() const { return spans_; }
  bool trusted() const { return spans_.empty(); }
  /// The canonical offset that the whole text depends on; 0 for trusted text.
  size_t OriginEnd() const;

  void Append(const Text& other);
  /// Bytes [begin, end) with their spans.
  Text Slice(size_t begin, size_t end) const;
  /// `bytes` made from this text: trusted if this is.
  Text Derive(std::string bytes) const;

 private:
  std::string bytes_;
  std::vector<UserSpan> spans_;  // ascending, not empty, disjoint
};

}  // namespace kvring::replica::jinja
