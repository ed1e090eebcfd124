#include "common/runtime/files.h"

#include <fcntl.h>
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

}  // namespace kvring
