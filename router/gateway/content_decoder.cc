#include "router/gateway/content_decoder.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/decompressor.h"
#include "common/net/http_message.h"

namespace kvring::router {
namespace {

using openai::ApiError;

constexpr int kMaxWindowLog = 23;  // 8 MiB: what the format asks of every decoder

ApiError TooLarge() {
  return {413, "invalid_request_error", "request_too_large", "", "The decoded request body is too large."};
}
ApiError Broken() {
  return openai::InvalidRequest("", "The encoded request body is malformed.", "malformed_request");
}

enum class Members { kOne, kMany };

// All of the decoder's input, the present `body`.
std::optional<ApiError> Decode(net::Decompressor* decoder, Members members, size_t max_bytes,
                               std::string& body) {
  using Step = net::Decompressor::Step;
  if (decoder == nullptr) return openai::InternalError();
  std::string out;
  for (Step step = Step::kMore; step != Step::kEnd || decoder->bytes_left() > 0;) {
    if (step == Step::kEnd && members == Members::kOne) return Broken();
    step = decoder->Read(out);
    if (out.size() > max_bytes) return TooLarge();
    if (step == Step::kBroken) return Broken();
  }
  body = std::move(out);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> DecodeContent(std::string_view coding, size_t max_bytes, std::string& body) {
  if (coding.empty() || net::EqualIgnoringCase(coding, "identity")) return std::nullopt;
  if (net::EqualIgnoringCase(coding, "gzip") || net::EqualIgnoringCase(coding, "x-gzip"))
    return Decode(net::MakeGzipDecompressor(body).get(), Members::kOne, max_bytes, body);
  if (net::EqualIgnoringCase(coding, "zstd"))
    return Decode(net::MakeZstdDecompressor(body, kMaxWindowLog).get(), Members::kMany, max_bytes, body);
  const std::string shown(coding.substr(0, 64));
  return ApiError{
      415, "invalid_request_error", "unsupported_content_encoding", "",
      absl::StrCat("Content-Encoding '", shown, "' is not understood; gzip and zstd are, one at a time.")};
}

}  // namespace kvring::router
