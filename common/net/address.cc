#include "common/net/address.h"

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/status_macros.h"

namespace kvring::net {
namespace {

absl::Status Bad(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", Absl(text), "\" is no address: ", Absl(why)));
}

bool ReadPort(std::string_view text, uint16_t& port) {
  if (text.empty() || text.size() > 5) return false;
  uint32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  port = static_cast<uint16_t>(value);
  return value <= 65535;
}

bool IsHostByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
         c == '_';
}

// Splits "host:port" and "[v6]:port"; the port may be absent.
absl::Status Split(std::string_view text, std::string_view& host, std::string_view& port) {
  const bool bracketed = text.starts_with('[');
  const size_t host_end = bracketed ? text.find(']') : text.find(':');
  if (bracketed && host_end == std::string_view::npos) return Bad(text, "']' is missing");
  host = bracketed ? text.substr(1, host_end - 1) : text.substr(0, host_end);
  std::string_view rest =
      host_end == std::string_view::npos ? std::string_view() : text.substr(host_end + (bracketed ? 1 : 0));
  if (host.empty()) return Bad(text, "the host is empty");
  for (const char c : host) {
    const bool v6 = bracketed && (c == ':' || c == '%');
    if (!IsHostByte(c) && !v6) return Bad(text, "the host has characters that are not allowed");
  }
  if (!bracketed && rest.find(':', 1) != std::string_view::npos)
    return Bad(text, "an IPv6 address needs brackets");
  if (!rest.empty() && rest.front() != ':') return Bad(text, "a port must follow ']'");
  port = rest.empty() ? rest : rest.substr(1);
  return absl::OkStatus();
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return out;
}

}  // namespace

std::string Address::ToString() const {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  std::string_view host;
  std::string_view port;
  KVRING_RETURN_IF_ERROR(Split(text, host, port));
  Address address{.host = std::string(host)};
  if (port.empty()) return Bad(text, "the port is missing (host:port)");
  if (!ReadPort(port, address.port)) return Bad(text, "the port must be a number from 0 to 65535");
  return address;
}

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || scheme_end == 0)
    return Bad(text, "it must start with http:// or grpc://");
  Url url{.scheme = LowerCase(text.substr(0, scheme_end))};
  std::string_view rest = text.substr(scheme_end + 3);
  if (rest.find_first_of("?#@") != std::string_view::npos)
    return Bad(text, "user, query and fragment are not allowed");
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  std::string_view host;
  std::string_view port;
  KVRING_RETURN_IF_ERROR(Split(rest.substr(0, slash), host, port));
  url.address.host = host;
  if (port.empty() && url.scheme == "http") {
    url.address.port = 80;
  } else if (port.empty() && url.scheme == "https") {
    url.address.port = 443;
  } else if (!ReadPort(port, url.address.port) || url.address.port == 0) {
    return Bad(text, "the port must be a number from 1 to 65535");
  }
  return url;
}

}  // namespace kvring::net
