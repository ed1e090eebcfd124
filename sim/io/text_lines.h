// TextLines: the lines of a text file, plain, gzip or zstd (told by its first bytes), decompressed as they
// are read: memory does not grow with the file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring::sim {

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

class TextLines {
 public:
  static absl::StatusOr<TextLines> Open(const std::string& path);
  TextLines(TextLines&&) noexcept;
  TextLines& operator=(TextLines&&) noexcept;
  ~TextLines();

  /// The next line without its end; valid until the next call. False at the end of the file. DataLoss: the
  /// compressed data are cut or damaged; ResourceExhausted: a line longer than kMaxLineBytes; both name file
  /// and line.
  absl::StatusOr<bool> Next(std::string_view& line);
  /// Of the line that Next gave last, from 1.
  int64_t number() const;
  const std::string& path() const;

 private:
  class Impl;
  explicit TextLines(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::sim
