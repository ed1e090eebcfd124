#include "common/runtime/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring {
namespace {

absl::Status Errno(const std::string& path, std::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", std::string(what)));
}

// The size of a regular file.
absl::StatusOr<size_t> SizeOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Errno(path, "cannot be read");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  return static_cast<size_t>(info.st_size);
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  KVRING_ASSIGN_OR_RETURN(const size_t size, SizeOf(path));
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", size, " bytes, at most ", max_bytes, " are read"));
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) return Errno(path, "read failed");
  return text;
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  if (!out) return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be written"));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  return out ? absl::OkStatus() : absl::DataLossError(absl::StrCat(path, ": could not be written whole"));
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(const size_t size, SizeOf(path));
  if (size == 0) return MappedFile({});
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno(path, "cannot be opened");
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return Errno(path, "cannot be mapped");
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<OwnedFile> OwnedFile::Open(const std::string& path, int64_t bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return Errno(path, "cannot be opened");
  OwnedFile file(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0)
    return absl::FailedPreconditionError(absl::StrCat(path, ": in use by another process"));
  if (ftruncate(fd, bytes) != 0) return Errno(path, "cannot be resized");
  errno = posix_fallocate(fd, 0, bytes);
  if (errno == ENOSPC)
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no room for ", bytes, " bytes on the disk"));
  if (errno != 0) return Errno(path, "cannot be resized");
  return file;
}

OwnedFile::OwnedFile(OwnedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OwnedFile& OwnedFile::operator=(OwnedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

OwnedFile::~OwnedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OwnedFile::Read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(path_, absl::StrCat("read at ", offset, " failed"));
    if (n == 0) return absl::OutOfRangeError(absl::StrCat(path_, ": ends at ", offset));
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return absl::OkStatus();
}

absl::Status OwnedFile::Write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(path_, absl::StrCat("write at ", offset, " failed"));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return absl::OkStatus();
}

}  // namespace kvring
