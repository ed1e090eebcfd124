#include "sim/io/text_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/decompressor.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"

namespace kvring::sim {
namespace {

constexpr size_t kPlainPiece = size_t{64} << 10;
constexpr int kMaxWindowLog = 27;  // 128 MiB: what the zstd program takes without being asked to

// Null: the bytes are text as they stand.
std::unique_ptr<net::Decompressor> DecompressorOf(std::string_view bytes) {
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return net::MakeZstdDecompressor(bytes, kMaxWindowLog);
  if (bytes.starts_with("\x1f\x8b")) return net::MakeGzipDecompressor(bytes);
  return nullptr;
}

}  // namespace

class TextLines::Impl {
 public:
  Impl(std::string path, MappedFile file)
      : path_(std::move(path)),
        file_(std::move(file)),
        plain_(reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()),
        decompressor_(DecompressorOf(plain_)) {}

  absl::StatusOr<bool> Next(std::string_view& line) {
    ++number_;
    size_t searched = 0;
    for (;;) {
      const size_t end = buffer_.find('\n', at_ + searched);
      if (end != std::string::npos) return Give(end, end + 1, line);
      searched = buffer_.size() - at_;
      if (searched > kMaxLineBytes) return absl::ResourceExhaustedError(Where("the line is too long"));
      buffer_.erase(0, at_);
      at_ = 0;
      if (!AtEnd()) {
        if (!Read()) return absl::DataLossError(Where("the compressed data are cut or damaged"));
        continue;
      }
      if (buffer_.empty()) return false;
      return Give(buffer_.size(), buffer_.size(), line);
    }
  }
  int64_t number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  bool AtEnd() const {
    return decompressor_ == nullptr ? plain_.empty() : at_member_end_ && decompressor_->bytes_left() == 0;
  }
  // More of the text into the buffer; false: damaged.
  bool Read() {
    if (decompressor_ == nullptr) {
      buffer_.append(plain_.substr(0, kPlainPiece));
      plain_.remove_prefix(std::min(kPlainPiece, plain_.size()));
      return true;
    }
    const net::Decompressor::Step step = decompressor_->Read(buffer_);
    at_member_end_ = step == net::Decompressor::Step::kEnd;
    return step != net::Decompressor::Step::kBroken;
  }
  bool Give(size_t end, size_t next, std::string_view& line) {
    line = std::string_view(buffer_).substr(at_, end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = next;
    return true;
  }
  std::string Where(const char* what) const { return absl::StrCat(path_, ":", number_, ": ", what); }

  std::string path_;
  MappedFile file_;
  std::string_view plain_;  // what is not read yet, where nothing is compressed
  std::unique_ptr<net::Decompressor> decompressor_;
  bool at_member_end_ = false;
  std::string buffer_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

TextLines::TextLines(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextLines::TextLines(TextLines&&) noexcept = default;
TextLines& TextLines::operator=(TextLines&&) noexcept = default;
TextLines::~TextLines() = default;

absl::StatusOr<TextLines> TextLines::Open(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return TextLines(std::make_unique<Impl>(path, std::move(file)));
}
absl::StatusOr<bool> TextLines::Next(std::string_view& line) { return impl_->Next(line); }
int64_t TextLines::number() const { return impl_->number(); }
const std::string& TextLines::path() const { return impl_->path(); }

}  // namespace kvring::sim
