// The one door to files: whole-file reads and read-only mappings, errors with the path in them.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace kvring {

/// The whole file. NotFound, PermissionDenied or ResourceExhausted (larger than max_bytes), each naming the
/// path.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

/// A read-only shared mapping of a regular file; unmapped when destroyed. An empty file gives an empty span.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace kvring
