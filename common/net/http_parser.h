// HTTP/1.1 heads and body framing as pure functions over buffers (RFC 9110, RFC 9112), strict where leniency
// lets two parsers disagree: CRLF line ends only, no obs-fold, no space before a colon, one Content-Length of
// digits, never together with Transfer-Encoding, "chunked" as the only coding. Views point into the caller's
// buffer; nothing is copied or unescaped.
//
// Use: HeadScanner finds the end of a head in a growing buffer (each byte looked at once); then
// ParseRequestHead or ParseResponseHead reads it; the head's framing says how the body ends; ChunkedDecoder
// walks a chunked one.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvring::net {

struct HeaderField {
  std::string_view name;
  std::string_view value;  // without surrounding blanks
};

/// Finds a field by name, ignoring case; null when absent.
const HeaderField* FindField(const std::vector<HeaderField>& fields, std::string_view name);

struct HeadLimits {
  size_t max_bytes = 64 << 10;
  size_t max_fields = 128;
};

/// What is wrong with a message: the status to answer with and one sentence. `status` 0: nothing.
struct HttpFault {
  int status = 0;
  std::string_view message;
  explicit operator bool() const { return status != 0; }
};

/// Looks for the empty line that ends a head. Feed it the whole buffer each time; it goes on where it
/// stopped.
class HeadScanner {
 public:
  enum class State { kIncomplete, kComplete, kFault };
  explicit HeadScanner(HeadLimits limits = {}) : limits_(limits) {}

  State Scan(std::string_view buffer);
  /// kComplete: bytes of the head with its empty line.
  size_t head_bytes() const { return scanned_; }
  /// kFault: 400 for a bare LF, 431 over a limit.
  HttpFault fault() const { return fault_; }
  void Reset() { *this = HeadScanner(limits_); }

 private:
  State Fail(int status, std::string_view message);

  HeadLimits limits_;
  size_t scanned_ = 0;  // start of the first line without an end yet
  size_t lines_ = 0;
  HttpFault fault_;
};

enum class BodyFraming {
  kNone,
  kLength,
  kChunked,
  kUntilClose,  // responses only
};

struct RequestHeadView {
  std::string_view method;
  std::string_view target;  // origin form; of an absolute-form target the part from its path on
  std::string_view host;
  int minor_version = 1;
  std::vector<HeaderField> fields;
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
  bool keep_alive = true;
  bool expects_continue = false;
};

struct ResponseHeadView {
  int status = 0;
  std::string_view reason;
  int minor_version = 1;
  std::vector<HeaderField> fields;
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
  bool keep_alive = true;
};

/// `head` is a complete head as HeadScanner found it. `out.fields` keeps its capacity between calls.
HttpFault ParseRequestHead(std::string_view head, RequestHeadView& out);
/// `to_head_request`: the answer to a HEAD has no body whatever its fields say. Faults have status 502.
HttpFault ParseResponseHead(std::string_view head, bool to_head_request, ResponseHeadView& out);

/// Whether a comma-separated field value holds the token, ignoring case.
bool HasToken(std::string_view list, std::string_view token);
/// Decimal digits only, at most 19 of them; false otherwise.
bool ParseContentLength(std::string_view text, uint64_t& length);
/// RFC 9110 token: what methods and field names are made of.
bool IsToken(std::string_view text);
/// No control characters except a tab: what a field value may hold.
bool IsFieldValue(std::string_view text);

/// Walks a chunked body in pieces of any size. Sizes are plain hex digits; extensions are skipped, trailers
/// checked and skipped, each within a bound.
class ChunkedDecoder {
 public:
  enum class Step { kNeedMore, kData, kDone, kFault };
  /// Takes bytes off the front of `input`. kData: `data` is a piece of the body inside `input`'s old bytes.
  /// After kDone what is left in `input` belongs to the next message.
  Step Next(std::string_view& input, std::string_view& data);
  /// Whether the next byte would start a chunk's size: where a proxy may put a chunk of its own.
  bool between_chunks() const { return state_ == State::kSizeStart; }
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State {
    kSizeStart,
    kSize,
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailer,
    kTrailerLf,
    kEndLf,
    kDone,
    kFault
  };
  bool Control(char byte);
  bool SizeByte(char byte);
  bool TrailerByte(char byte);

  State state_ = State::kSizeStart;
  uint64_t left_ = 0;
  uint32_t side_bytes_ = 0;  // of this chunk's extension, or of all trailers
};

}  // namespace kvring::net
