#include "router/gateway/content_decoder.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/net/http_message.h"

namespace kvring::router {
namespace {

using openai::ApiError;

constexpr size_t kStep = 64 << 10;

ApiError TooLarge() {
  return {413, "invalid_request_error", "request_too_large", "", "The decoded request body is too large."};
}
ApiError Broken() {
  return openai::InvalidRequest("", "The encoded request body is malformed.", "malformed_request");
}

// One step of decoding into `out`; kDone at the end of the data.
enum class Step { kMore, kDone, kBroken };

// Runs `step` until it is done; `step(out)` appends at most kStep bytes.
template <class StepFn>
std::optional<ApiError> Collect(size_t max_bytes, std::string& body, StepFn step) {
  std::string out;
  while (true) {
    const Step state = step(out);
    if (out.size() > max_bytes) return TooLarge();
    if (state == Step::kBroken) return Broken();
    if (state == Step::kDone) break;
  }
  body = std::move(out);
  return std::nullopt;
}

std::optional<ApiError> Gunzip(size_t max_bytes, std::string& body) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return openai::InternalError();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> ender(&stream, &inflateEnd);
  const std::string input = std::move(body);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
  stream.avail_in = static_cast<uInt>(input.size());
  return Collect(max_bytes, body, [&](std::string& out) {
    const size_t before = out.size();
    out.resize(before + kStep);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = kStep;
    const int state = inflate(&stream, Z_NO_FLUSH);
    out.resize(before + kStep - stream.avail_out);
    if (state == Z_STREAM_END) return stream.avail_in == 0 ? Step::kDone : Step::kBroken;
    return state == Z_OK && out.size() > before ? Step::kMore : Step::kBroken;
  });
}

std::optional<ApiError> Unzstd(size_t max_bytes, std::string& body) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (!stream) return openai::InternalError();
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax,
                         23);  // 8 MiB: what the format asks of every decoder
  const std::string source = std::move(body);
  ZSTD_inBuffer input{source.data(), source.size(), 0};
  return Collect(max_bytes, body, [&](std::string& out) {
    const size_t before = out.size();
    out.resize(before + kStep);
    ZSTD_outBuffer output{out.data() + before, kStep, 0};
    const size_t left = ZSTD_decompressStream(stream.get(), &output, &input);
    out.resize(before + output.pos);
    if (ZSTD_isError(left)) return Step::kBroken;
    if (left == 0) return input.pos == input.size ? Step::kDone : Step::kMore;  // a further frame may follow
    return output.pos > 0 || input.pos < input.size ? Step::kMore : Step::kBroken;
  });
}

}  // namespace

std::optional<ApiError> DecodeContent(std::string_view coding, size_t max_bytes, std::string& body) {
  if (coding.empty() || net::EqualIgnoringCase(coding, "identity")) return std::nullopt;
  if (net::EqualIgnoringCase(coding, "gzip") || net::EqualIgnoringCase(coding, "x-gzip"))
    return Gunzip(max_bytes, body);
  if (net::EqualIgnoringCase(coding, "zstd")) return Unzstd(max_bytes, body);
  const std::string shown(coding.substr(0, 64));
  return ApiError{
      415, "invalid_request_error", "unsupported_content_encoding", "",
      absl::StrCat("Content-Encoding '", shown, "' is not understood; gzip and zstd are, one at a time.")};
}

}  // namespace kvring::router
