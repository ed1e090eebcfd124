#include "common/net/decompressor.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace kvring::net {
namespace {

class GzipDecompressor final : public Decompressor {
 public:
  explicit GzipDecompressor(std::string_view input) : rest_(input) {}
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  bool Init() {
    constexpr int kGzipOnly = 16;
    return inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK;
  }

  Step Read(std::string& out) override {
    if (std::exchange(at_end_, false)) inflateReset(&stream_);
    if (stream_.avail_in == 0) Feed();
    const size_t before = out.size();
    out.resize(before + kPieceBytes);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream_.avail_out = kPieceBytes;
    const int state = inflate(&stream_, Z_NO_FLUSH);
    out.resize(before + kPieceBytes - stream_.avail_out);
    at_end_ = state == Z_STREAM_END;
    if (at_end_) return Step::kEnd;
    return state == Z_OK && (out.size() > before || !rest_.empty()) ? Step::kMore : Step::kBroken;
  }

  size_t bytes_left() const override { return stream_.avail_in + rest_.size(); }

 private:
  // zlib counts its input in 32 bits.
  void Feed() {
    const size_t bytes = std::min<size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
    stream_.avail_in = static_cast<uInt>(bytes);
    rest_.remove_prefix(bytes);
  }

  std::string_view rest_;  // behind what zlib has
  z_stream stream_{};
  bool at_end_ = false;
};

class ZstdDecompressor final : public Decompressor {
 public:
  explicit ZstdDecompressor(std::string_view input) : input_{input.data(), input.size(), 0} {}

  bool Init(int max_window_log) {
    return stream_ != nullptr &&
           !ZSTD_isError(ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, max_window_log));
  }

  Step Read(std::string& out) override {
    const size_t before = out.size();
    out.resize(before + kPieceBytes);
    ZSTD_outBuffer output{out.data() + before, kPieceBytes, 0};
    const size_t left = ZSTD_decompressStream(stream_.get(), &output, &input_);
    out.resize(before + output.pos);
    if (ZSTD_isError(left)) return Step::kBroken;
    if (left == 0) return Step::kEnd;
    return output.pos > 0 || bytes_left() > 0 ? Step::kMore : Step::kBroken;
  }

  size_t bytes_left() const override { return input_.size - input_.pos; }

 private:
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream_{ZSTD_createDStream(), &ZSTD_freeDStream};
  ZSTD_inBuffer input_;
};

}  // namespace

std::unique_ptr<Decompressor> MakeGzipDecompressor(std::string_view input) {
  auto gzip = std::make_unique<GzipDecompressor>(input);
  return gzip->Init() ? std::move(gzip) : nullptr;
}

std::unique_ptr<Decompressor> MakeZstdDecompressor(std::string_view input, int max_window_log) {
  auto zstd = std::make_unique<ZstdDecompressor>(input);
  return zstd->Init(max_window_log) ? std::move(zstd) : nullptr;
}

}  // namespace kvring::net
