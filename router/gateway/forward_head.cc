#include "router/gateway/forward_head.h"

#include "absl/strings/str_cat.h"
#include "common/net/http_message.h"

namespace kvring::router {
namespace {

using net::EqualIgnoringCase;
using net::HeaderField;

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view candidate : names) {
    if (EqualIgnoringCase(name, candidate)) return true;
  }
  return false;
}

// By length first: most fields are told apart without a comparison.
bool IsHopByHop(std::string_view name) {
  switch (name.size()) {
    case 2:
      return IsOneOf(name, {"te"});
    case 7:
      return IsOneOf(name, {"trailer", "upgrade"});
    case 10:
      return IsOneOf(name, {"connection", "keep-alive"});
    case 16:
      return IsOneOf(name, {"proxy-connection"});
    case 17:
      return IsOneOf(name, {"transfer-encoding"});
    case 18:
      return IsOneOf(name, {"proxy-authenticate"});
    case 19:
      return IsOneOf(name, {"proxy-authorization"});
    default:
      return false;
  }
}

// What the router writes itself, or keeps to itself.
bool IsReplacedInRequest(std::string_view name) {
  switch (name.size()) {
    case 4:
      return IsOneOf(name, {"host"});
    case 6:
      return IsOneOf(name, {"expect", "cookie"});
    case 12:
      return IsOneOf(name, {"x-request-id"});
    case 14:
      return IsOneOf(name, {"content-length"});
    case 15:
      return IsOneOf(name, {"x-forwarded-for"});
    case 16:
      return IsOneOf(name, {"x-forwarded-host"});
    case 17:
      return IsOneOf(name, {"x-forwarded-proto"});
    default:
      return false;
  }
}

bool IsReplacedInAnswer(std::string_view name) {
  return (name.size() == 12 && EqualIgnoringCase(name, "x-request-id")) ||
         (name.size() > 9 && EqualIgnoringCase(name.substr(0, 9), "x-kvring-"));
}

// The value of Connection, joined over its lines; almost always none or one.
class ConnectionTokens {
 public:
  explicit ConnectionTokens(std::span<const HeaderField> fields) {
    for (const HeaderField& field : fields) {
      if (field.name.size() != 10 || !EqualIgnoringCase(field.name, "connection")) continue;
      if (!EqualIgnoringCase(field.value, "close") && !EqualIgnoringCase(field.value, "keep-alive"))
        named_ = true;
    }
    fields_ = fields;
  }

  bool Name(std::string_view name) const {
    if (!named_) return false;
    for (const HeaderField& field : fields_) {
      if (EqualIgnoringCase(field.name, "connection") && net::HasToken(field.value, name)) return true;
    }
    return false;
  }

 private:
  bool named_ = false;
  std::span<const HeaderField> fields_;
};

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

void AppendNumber(std::string& out, std::string_view name, size_t value) {
  char digits[24];
  char* end = absl::numbers_internal::FastIntToBuffer(static_cast<uint64_t>(value), digits);
  AppendField(out, name, {digits, static_cast<size_t>(end - digits)});
}

std::string_view HostOfPeer(std::string_view peer) {
  std::string_view host = peer.substr(0, peer.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

void AppendForwarded(std::string& out, const ForwardedRequest& request) {
  out.append("X-Forwarded-For: ");
  for (const HeaderField& field : request.head.fields) {
    if (EqualIgnoringCase(field.name, "x-forwarded-for")) out.append(field.value).append(", ");
  }
  out.append(HostOfPeer(request.peer)).append("\r\n");
  if (!request.head.host.empty()) AppendField(out, "X-Forwarded-Host", request.head.host);
  out.append("X-Forwarded-Proto: http\r\n");
}

}  // namespace

void AppendForwardHead(std::string& out, const ForwardedRequest& request, const Endpoint& endpoint) {
  const net::RequestHeadView& head = request.head;
  out.append(head.method).append(" ").append(endpoint.url.path).append(head.target).append(" HTTP/1.1\r\n");
  AppendField(out, "Host", endpoint.authority);
  const ConnectionTokens connection(head.fields);
  const bool keep_authorization = request.keep_authorization && endpoint.api_key.empty();
  for (const HeaderField& field : head.fields) {
    if (IsHopByHop(field.name) || IsReplacedInRequest(field.name) || connection.Name(field.name)) continue;
    if (!keep_authorization && EqualIgnoringCase(field.name, "authorization")) continue;
    if (request.body_decoded && EqualIgnoringCase(field.name, "content-encoding")) continue;
    AppendField(out, field.name, field.value);
  }
  if (!endpoint.api_key.empty()) out.append("Authorization: Bearer ").append(endpoint.api_key).append("\r\n");
  AppendForwarded(out, request);
  AppendField(out, "X-Request-Id", request.request_name);
  const bool has_body = head.framing != net::BodyFraming::kNone || head.method == "POST" ||
                        head.method == "PUT" || head.method == "PATCH";
  if (has_body) AppendNumber(out, "Content-Length", request.body_bytes);
  out.append("\r\n");
}

void AppendAnswerHead(std::string& out, const AnswerHead& head, const AnswerShape& shape,
                      std::string_view own_lines) {
  out.append("HTTP/1.1 ");
  const char status[4] = {static_cast<char>('0' + head.status / 100),
                          static_cast<char>('0' + head.status / 10 % 10),
                          static_cast<char>('0' + head.status % 10), ' '};
  out.append(status, 4).append(head.reason).append("\r\n");
  const ConnectionTokens connection(head.fields);
  bool cache_control = false;
  for (const HeaderField& field : head.fields) {
    if (IsHopByHop(field.name) || IsReplacedInAnswer(field.name) || connection.Name(field.name)) continue;
    if (shape.event_stream && EqualIgnoringCase(field.name, "x-accel-buffering")) continue;
    cache_control = cache_control || (shape.event_stream && EqualIgnoringCase(field.name, "cache-control"));
    AppendField(out, field.name, field.value);
  }
  if (shape.event_stream)
    out.append(cache_control ? "X-Accel-Buffering: no\r\n"
                             : "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
  if (shape.chunk_to_client) out.append("Transfer-Encoding: chunked\r\n");
  if (!shape.keep_alive) {
    out.append("Connection: close\r\n");
  } else if (shape.http10) {
    out.append("Connection: keep-alive\r\n");
  }
  out.append(own_lines).append("\r\n");
}

bool IsEventStream(std::span<const HeaderField> fields) {
  for (const HeaderField& field : fields) {
    if (field.name.size() == 12 && EqualIgnoringCase(field.name, "content-type")) {
      return field.value.size() >= 17 && EqualIgnoringCase(field.value.substr(0, 17), "text/event-stream");
    }
  }
  return false;
}

bool IsUsableRequestName(std::string_view name) {
  if (name.empty() || name.size() > 128) return false;
  for (const char c : name) {
    if (static_cast<signed char>(c) <= 0x20 || c == 0x7f) return false;  // bytes above 0x7f too
  }
  return true;
}

}  // namespace kvring::router
