// MsgpackReader: pulls MessagePack values one after another from a buffer, without copying or allocating: a
// length in the text is believed only as far as the text goes (the C and C++ libraries allocate what a length
// says, so five bytes cost gigabytes). Every Take… either takes a whole value of its kind or leaves the
// reader failed, for good. The format: github.com/msgpack/msgpack/blob/master/spec.md. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvring::router {

class MsgpackReader {
 public:
  enum class Kind { kNil, kBool, kInteger, kFloat, kText, kBytes, kArray, kMap, kExtension, kEnd };

  explicit MsgpackReader(std::string_view text) : text_(text) {}

  bool failed() const { return failed_; }
  /// Of the next value; kEnd behind the last one or after a failure.
  Kind Peek() const;
  size_t offset() const { return at_; }

  /// True: it was nil, and is taken.
  bool TakeNil();
  /// Integers above 2^63 - 1 keep their 64 bits.
  uint64_t TakeInteger();
  /// Text or bytes.
  std::string_view TakeString();
  /// The number of elements that follow; never more than there are bytes left.
  size_t TakeArray();
  /// The number of pairs that follow.
  size_t TakeMap();
  /// Any value with all in it.
  void Skip();
  void Fail() { failed_ = true; }

 private:
  static constexpr int kMaxDepth = 32;

  uint8_t Byte() { return static_cast<uint8_t>(text_[at_++]); }
  bool Has(uint64_t bytes) const { return bytes <= text_.size() - at_; }
  uint64_t BigEndian(size_t bytes);
  uint64_t TakeLength(uint8_t tag, uint8_t fixed, uint8_t mask, uint8_t first_long);
  void SkipAtDepth(int depth);

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace kvring::router
