#include "sim/io/text_lines.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"

namespace kvring::sim {
namespace {

constexpr size_t kPiece = size_t{256} << 10;

// Decompressed bytes, a piece at a time.
class Source {
 public:
  virtual ~Source() = default;
  enum class Got { kMore, kEnd, kDamaged };
  virtual Got Read(std::string& out) = 0;
};

class PlainSource final : public Source {
 public:
  explicit PlainSource(std::string_view input) : input_(input) {}
  Got Read(std::string& out) override {
    if (input_.empty()) return Got::kEnd;
    out.append(input_.substr(0, kPiece));
    input_.remove_prefix(std::min(kPiece, input_.size()));
    return Got::kMore;
  }

 private:
  std::string_view input_;
};

class ZstdSource final : public Source {
 public:
  explicit ZstdSource(std::string_view input) : input_{input.data(), input.size(), 0} {}
  Got Read(std::string& out) override {
    if (input_.pos == input_.size) return left_ == 0 ? Got::kEnd : Got::kDamaged;
    const size_t before = out.size();
    out.resize(before + kPiece);
    ZSTD_outBuffer output{out.data() + before, kPiece, 0};
    left_ = ZSTD_decompressStream(stream_.get(), &output, &input_);
    out.resize(before + output.pos);
    return ZSTD_isError(left_) ? Got::kDamaged : Got::kMore;
  }

 private:
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_{ZSTD_createDStream(), &ZSTD_freeDStream};
  ZSTD_inBuffer input_;
  size_t left_ = 0;  // 0: at the end of a frame
};

class GzipSource final : public Source {
 public:
  explicit GzipSource(std::string_view input) {
    constexpr int kGzipOnly = 16;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    inflateInit2(&stream_, kGzipOnly + MAX_WBITS);
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  Got Read(std::string& out) override {
    if (ended_ && stream_.avail_in == 0) return Got::kEnd;
    if (std::exchange(ended_, false)) inflateReset(&stream_);  // members may follow each other
    const size_t before = out.size();
    out.resize(before + kPiece);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = kPiece;
    const int got = inflate(&stream_, Z_NO_FLUSH);
    out.resize(out.size() - stream_.avail_out);
    ended_ = got == Z_STREAM_END;
    return ended_ || got == Z_OK ? Got::kMore : Got::kDamaged;
  }

 private:
  z_stream stream_{};
  bool ended_ = false;
};

std::unique_ptr<Source> MakeSource(std::string_view bytes) {
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdSource>(bytes);
  if (bytes.starts_with("\x1f\x8b")) return std::make_unique<GzipSource>(bytes);
  return std::make_unique<PlainSource>(bytes);
}

}  // namespace

class TextLines::Impl {
 public:
  Impl(std::string path, MappedFile file)
      : path_(std::move(path)),
        file_(std::move(file)),
        source_(MakeSource({reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()})) {}

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
      switch (source_->Read(buffer_)) {
        case Source::Got::kMore:
          continue;
        case Source::Got::kDamaged:
          return absl::DataLossError(Where("the compressed data are cut or damaged"));
        case Source::Got::kEnd:
          if (buffer_.empty()) return false;
          return Give(buffer_.size(), buffer_.size(), line);
      }
    }
  }
  int64_t number() const { return number_; }
  const std::string& path() const { return path_; }

 private:
  bool Give(size_t end, size_t next, std::string_view& line) {
    line = std::string_view(buffer_).substr(at_, end - at_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at_ = next;
    return true;
  }
  std::string Where(const char* what) const { return absl::StrCat(path_, ":", number_, ": ", what); }

  std::string path_;
  MappedFile file_;
  std::unique_ptr<Source> source_;
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
