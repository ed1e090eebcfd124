// The one door to files: whole-file reads and writes, read-only mappings and files that one process keeps to
// itself, errors with the path in them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring {

/// The whole file. NotFound, PermissionDenied or ResourceExhausted (larger than max_bytes), each naming the
/// path.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

/// The whole file, in place of what was there. PermissionDenied: it cannot be opened; DataLoss: it is not
/// written whole. Each names the path.
absl::Status WriteFile(const std::string& path, std::string_view bytes);

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

/// A file of a fixed size for one process at a time, read and written in place. Readable by its owner alone.
class OwnedFile {
 public:
  /// Makes or opens it, of exactly `bytes`, which are reserved on the disk. FailedPrecondition: another
  /// process has it. ResourceExhausted: the disk is full.
  static absl::StatusOr<OwnedFile> Open(const std::string& path, int64_t bytes);
  OwnedFile(OwnedFile&& other) noexcept;
  OwnedFile& operator=(OwnedFile&& other) noexcept;
  ~OwnedFile();

  absl::Status Read(int64_t offset, std::span<std::byte> out) const;
  absl::Status Write(int64_t offset, std::span<const std::byte> bytes);

 private:
  OwnedFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

}  // namespace kvring
