#include "common/net/http_parser.h"

#include <cstring>

#include "common/net/http_message.h"

namespace kvring::net {
namespace {

constexpr std::array<bool, 256> MakeTokenTable() {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<unsigned char>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kTokenBytes = MakeTokenTable();

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes the next line without its CRLF; the scanner has made sure that every LF has its CR.
std::string_view TakeLine(std::string_view& head) {
  const size_t end = head.find('\n');
  const std::string_view line = head.substr(0, end - 1);
  head.remove_prefix(end + 1);
  return line;
}

struct FramingFields {
  const HeaderField* content_length = nullptr;
  const HeaderField* transfer_encoding = nullptr;
  bool close = false;
  bool keep_alive = false;
};

class FieldReader {
 public:
  explicit FieldReader(std::vector<HeaderField>& fields) : fields_(fields) { fields_.clear(); }

  std::string_view Read(std::string_view head) {
    while (true) {
      const std::string_view line = TakeLine(head);
      if (line.empty()) return {};
      if (const std::string_view wrong = Line(line); !wrong.empty()) return wrong;
    }
  }

 private:
  std::string_view Line(std::string_view line) {
    if (line.front() == ' ' || line.front() == '\t') return "A folded header line is not accepted.";
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return "A header line has no colon.";
    const std::string_view name = line.substr(0, colon);
    if (!IsToken(name)) return "A header name has characters that are not allowed.";
    const std::string_view value = TrimBlanks(line.substr(colon + 1));
    if (!IsFieldValue(value)) return "A header value has control characters.";
    fields_.push_back({name, value});
    return {};
  }

  std::vector<HeaderField>& fields_;
};

// Reads what decides where the message ends. Returns what is wrong, or nothing.
std::string_view ReadFraming(const std::vector<HeaderField>& fields, FramingFields& framing) {
  for (const HeaderField& field : fields) {
    switch (field.name.size()) {
      case 10:
        if (EqualIgnoringCase(field.name, "connection")) {
          framing.close = framing.close || HasToken(field.value, "close");
          framing.keep_alive = framing.keep_alive || HasToken(field.value, "keep-alive");
        }
        break;
      case 14:
        if (EqualIgnoringCase(field.name, "content-length")) {
          if (framing.content_length != nullptr) return "Content-Length is given twice.";
          framing.content_length = &field;
        }
        break;
      case 17:
        if (EqualIgnoringCase(field.name, "transfer-encoding")) {
          if (framing.transfer_encoding != nullptr) return "Transfer-Encoding is given twice.";
          framing.transfer_encoding = &field;
        }
        break;
      default:
        break;
    }
  }
  if (framing.content_length != nullptr && framing.transfer_encoding != nullptr) {
    return "Content-Length and Transfer-Encoding are given together.";
  }
  return {};
}

bool KeepAlive(const FramingFields& framing, int minor_version) {
  return minor_version >= 1 ? !framing.close : framing.keep_alive && !framing.close;
}

// "HTTP/1.1" or "HTTP/1.0".
bool ReadVersion(std::string_view text, int& minor_version) {
  if (text != "HTTP/1.1" && text != "HTTP/1.0") return false;
  minor_version = text.back() - '0';
  return true;
}

bool IsVisible(std::string_view text) {
  for (const char c : text) {
    if (static_cast<signed char>(c) <= 0x20 || c == 0x7f) return false;  // bytes above 0x7f too
  }
  return !text.empty();
}

// Origin form stays; "http://host/path" is cut to "/path" (RFC 9112 §3.2.2).
bool ReadTarget(std::string_view text, std::string_view method, RequestHeadView& out) {
  if (!IsVisible(text)) return false;
  out.target = text;
  if (text.front() == '/') return true;
  if (text == "*") return method == "OPTIONS";
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || !EqualIgnoringCase(text.substr(0, scheme), "http")) return false;
  const std::string_view rest = text.substr(scheme + 3);
  const size_t path = rest.find('/');
  out.target = path == std::string_view::npos ? std::string_view("/") : rest.substr(path);
  return true;
}

HttpFault ReadRequestLine(std::string_view line, RequestHeadView& out) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return {400, "The request line is malformed."};
  out.method = line.substr(0, first);
  if (out.method.size() > 32 || !IsToken(out.method)) return {400, "The method is malformed."};
  const std::string_view version = line.substr(last + 1);
  if (!ReadVersion(version, out.minor_version)) {
    if (version.starts_with("HTTP/") && version.size() == 8)
      return {505, "Only HTTP/1.1 and HTTP/1.0 are spoken here."};
    return {400, "The request line is malformed."};
  }
  if (!ReadTarget(line.substr(first + 1, last - first - 1), out.method, out)) {
    return {400, "The request target is malformed."};
  }
  return {};
}

HttpFault ReadHostAndExpect(RequestHeadView& out) {
  out.host = {};
  out.expects_continue = false;
  bool host_seen = false;
  for (const HeaderField& field : out.fields) {
    if (EqualIgnoringCase(field.name, "host")) {
      if (host_seen) return {400, "Host is given twice."};
      host_seen = true;
      out.host = field.value;
    } else if (EqualIgnoringCase(field.name, "expect")) {
      if (!EqualIgnoringCase(field.value, "100-continue"))
        return {417, "Only Expect: 100-continue is understood."};
      out.expects_continue = out.minor_version >= 1;
    }
  }
  if (!host_seen && out.minor_version >= 1) return {400, "Host is missing."};
  return {};
}

HttpFault ReadRequestBody(const FramingFields& framing, RequestHeadView& out) {
  out.framing = BodyFraming::kNone;
  out.content_length = 0;
  if (framing.transfer_encoding != nullptr) {
    if (out.minor_version == 0) return {400, "Transfer-Encoding is not part of HTTP/1.0."};
    if (!EqualIgnoringCase(framing.transfer_encoding->value, "chunked")) {
      return {501, "The only transfer coding understood is chunked."};
    }
    out.framing = BodyFraming::kChunked;
  } else if (framing.content_length != nullptr) {
    if (!ParseContentLength(framing.content_length->value, out.content_length)) {
      return {400, "Content-Length is not a number."};
    }
    out.framing = out.content_length > 0 ? BodyFraming::kLength : BodyFraming::kNone;
  }
  return {};
}

// "HTTP/1.1 200 OK"; the reason may be empty, its space too.
bool ReadStatusLine(std::string_view line, ResponseHeadView& out) {
  if (line.size() < 12 || !ReadVersion(line.substr(0, 8), out.minor_version) || line[8] != ' ') return false;
  out.status = 0;
  for (const char c : line.substr(9, 3)) {
    if (c < '0' || c > '9') return false;
    out.status = out.status * 10 + (c - '0');
  }
  if (out.status < 100 || out.status > 599) return false;
  if (line.size() > 12 && line[12] != ' ') return false;
  out.reason = line.size() > 13 ? line.substr(13) : std::string_view();
  return IsFieldValue(out.reason);
}

HttpFault ReadResponseBody(const FramingFields& framing, bool to_head_request, ResponseHeadView& out) {
  out.content_length = 0;
  if (framing.content_length != nullptr &&
      !ParseContentLength(framing.content_length->value, out.content_length)) {
    return {502, "Content-Length is not a number."};
  }
  if (to_head_request || out.status < 200 || out.status == 204 || out.status == 304) {
    out.framing = BodyFraming::kNone;
  } else if (framing.transfer_encoding != nullptr) {
    if (!EqualIgnoringCase(framing.transfer_encoding->value, "chunked"))
      return {502, "Unknown transfer coding."};
    out.framing = BodyFraming::kChunked;
  } else if (framing.content_length != nullptr) {
    out.framing = out.content_length > 0 ? BodyFraming::kLength : BodyFraming::kNone;
  } else {
    out.framing = BodyFraming::kUntilClose;
  }
  return {};
}

}  // namespace

const HeaderField* FindField(const std::vector<HeaderField>& fields, std::string_view name) {
  for (const HeaderField& field : fields) {
    if (EqualIgnoringCase(field.name, name)) return &field;
  }
  return nullptr;
}

bool IsToken(std::string_view text) {
  for (const char c : text) {
    if (!kTokenBytes[static_cast<unsigned char>(c)]) return false;
  }
  return !text.empty();
}

bool IsFieldValue(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && byte != '\t') || byte == 0x7f) return false;
  }
  return true;
}

bool HasToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (EqualIgnoringCase(TrimBlanks(list.substr(0, comma)), token)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

bool ParseContentLength(std::string_view text, uint64_t& length) {
  if (text.empty() || text.size() > 19) return false;
  length = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    length = length * 10 + static_cast<uint64_t>(c - '0');
  }
  return true;
}

HeadScanner::State HeadScanner::Fail(int status, std::string_view message) {
  fault_ = {status, message};
  return State::kFault;
}

HeadScanner::State HeadScanner::Scan(std::string_view buffer) {
  while (true) {
    const auto* from = buffer.data() + scanned_;
    const auto* lf = static_cast<const char*>(std::memchr(from, '\n', buffer.size() - scanned_));
    if (lf == nullptr) break;
    if (lf == from || lf[-1] != '\r') return Fail(400, "A header line ends without a carriage return.");
    const bool empty = lf - from == 1;
    scanned_ += static_cast<size_t>(lf - from) + 1;
    if (scanned_ > limits_.max_bytes) return Fail(431, "The header is too large.");
    if (empty && scanned_ == 2) continue;  // one empty line before the start line is forgiven (RFC 9112 §2.2)
    if (empty) return State::kComplete;
    if (++lines_ > limits_.max_fields + 1) return Fail(431, "The header has too many fields.");
  }
  if (buffer.size() > limits_.max_bytes) return Fail(431, "The header is too large.");
  return State::kIncomplete;
}

HttpFault ParseRequestHead(std::string_view head, RequestHeadView& out) {
  if (head.starts_with("\r\n")) head.remove_prefix(2);
  if (HttpFault fault = ReadRequestLine(TakeLine(head), out)) return fault;
  if (const std::string_view wrong = FieldReader(out.fields).Read(head); !wrong.empty()) return {400, wrong};
  FramingFields framing;
  if (const std::string_view wrong = ReadFraming(out.fields, framing); !wrong.empty()) return {400, wrong};
  if (HttpFault fault = ReadHostAndExpect(out)) return fault;
  out.keep_alive = KeepAlive(framing, out.minor_version);
  return ReadRequestBody(framing, out);
}

HttpFault ParseResponseHead(std::string_view head, bool to_head_request, ResponseHeadView& out) {
  if (!ReadStatusLine(TakeLine(head), out)) return {502, "The status line is malformed."};
  if (const std::string_view wrong = FieldReader(out.fields).Read(head); !wrong.empty()) return {502, wrong};
  FramingFields framing;
  if (const std::string_view wrong = ReadFraming(out.fields, framing); !wrong.empty()) return {502, wrong};
  if (HttpFault fault = ReadResponseBody(framing, to_head_request, out)) return fault;
  out.keep_alive = KeepAlive(framing, out.minor_version) && out.framing != BodyFraming::kUntilClose;
  return {};
}

}  // namespace kvring::net
