// Decompressor: gzip (RFC 1952) or zstd (RFC 8878) bytes in memory, given back a bounded piece at a time, so
// that whoever reads decides how much it takes. Members (gzip) and frames (zstd) may follow each other: after
// kEnd, Read goes on with the next one if bytes are left. Not thread-safe; the input must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvring::net {

class Decompressor {
 public:
  static constexpr size_t kPieceBytes = 64 << 10;

  enum class Step {
    kMore,
    kEnd,     // of a member or frame
    kBroken,  // damaged, or the input ends before it does
  };

  virtual ~Decompressor() = default;
  /// Appends at most kPieceBytes to `out`.
  virtual Step Read(std::string& out) = 0;
  /// Of the input, not read yet.
  virtual size_t bytes_left() const = 0;
};

/// Null when there is no memory for it, as below.
std::unique_ptr<Decompressor> MakeGzipDecompressor(std::string_view input);
/// A frame that asks for a window of more than 2^max_window_log bytes is broken.
std::unique_ptr<Decompressor> MakeZstdDecompressor(std::string_view input, int max_window_log);

}  // namespace kvring::net
