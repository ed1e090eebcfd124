// Fuzz target of the HTTP parser: any bytes, cut at a place that the input chooses, give the same as in one
// piece; what is accepted keeps the invariants that two parsers could disagree on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/net/http_parser.h"

namespace {

using namespace kvring::net;

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Scanned {
  HeadScanner::State state;
  size_t bytes;
};

Scanned Scan(std::string_view bytes, size_t cut) {
  HeadScanner scanner({.max_bytes = 2048, .max_fields = 32});
  HeadScanner::State state = scanner.Scan(bytes.substr(0, cut));
  if (state == HeadScanner::State::kIncomplete) state = scanner.Scan(bytes);
  return {state, state == HeadScanner::State::kComplete ? scanner.head_bytes() : 0};
}

void CheckFields(const std::vector<HeaderField>& fields, std::string_view head) {
  int framings = 0;
  for (const HeaderField& field : fields) {
    Require(field.name.data() >= head.data() &&
            field.value.data() + field.value.size() <= head.data() + head.size());
    Require(IsToken(field.name) && IsFieldValue(field.value));
    std::string lower;
    for (const char c : field.name) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    framings += lower == "content-length" || lower == "transfer-encoding";
  }
  Require(framings <= 1);
}

void FuzzHead(std::string_view bytes, size_t cut) {
  const Scanned whole = Scan(bytes, bytes.size());
  const Scanned pieces = Scan(bytes, cut);
  Require(whole.state == pieces.state || whole.state == HeadScanner::State::kFault ||
          pieces.state == HeadScanner::State::kFault);
  if (whole.state != HeadScanner::State::kComplete) return;
  Require(pieces.state != HeadScanner::State::kComplete || whole.bytes == pieces.bytes);
  Require(whole.bytes >= 2 && bytes.substr(0, whole.bytes).ends_with("\r\n"));
  const std::string head(
      bytes.substr(0, whole.bytes));  // its own memory: a view past it is seen by the sanitizer
  RequestHeadView request;
  if (!ParseRequestHead(head, request)) {
    CheckFields(request.fields, head);
    Require(IsToken(request.method) && !request.target.empty());
  }
  ResponseHeadView response;
  if (!ParseResponseHead(head, false, response)) CheckFields(response.fields, head);
}

// Body and end of a chunked message; the end is npos while it is unfinished, and a fault is told apart by
// `fault`.
struct Decoded {
  std::string body;
  size_t end = std::string::npos;
  bool fault = false;
  friend bool operator==(const Decoded&, const Decoded&) = default;
};

Decoded Decode(std::string_view bytes, size_t cut) {
  ChunkedDecoder decoder;
  Decoded decoded;
  size_t before = 0;
  for (const std::string_view piece : {bytes.substr(0, cut), bytes.substr(cut)}) {
    std::string_view input = piece;
    std::string_view data;
    ChunkedDecoder::Step step;
    while ((step = decoder.Next(input, data)) == ChunkedDecoder::Step::kData) decoded.body += data;
    if (step == ChunkedDecoder::Step::kFault) {
      decoded.fault = true;
      return decoded;
    }
    if (step == ChunkedDecoder::Step::kDone) {
      decoded.end = before + piece.size() - input.size();
      return decoded;
    }
    Require(input.empty());
    before += piece.size();
  }
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = data[0] * bytes.size() / 256;
  FuzzHead(bytes, cut);
  Require(Decode(bytes, cut) == Decode(bytes, bytes.size()));
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  return {
      "7POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nConnection: "
      "keep-alive\r\n\r\n{\"model\":1}",
      "7GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX: y\r\nExpect: "
      "100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
      "7HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
      "75;ext=\"v\"\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET"};
}
