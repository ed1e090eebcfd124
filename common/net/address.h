// Address: where something listens or is reached: "127.0.0.1:8080", "[::1]:0", "replica-1:9001",
// "http://host:port". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring::net {

struct Address {
  std::string host;  // name, IPv4, or IPv6 without brackets
  uint16_t port = 0;

  /// host:port, IPv6 in brackets.
  std::string ToString() const;
  friend bool operator==(const Address&, const Address&) = default;
};

/// "host:port". The port is decimal, 0 to 65535; 0 only makes sense for listening. Errors quote the text and
/// say what is wrong.
absl::StatusOr<Address> ParseAddress(std::string_view text);

struct Url {
  std::string scheme;  // lower case: "http", "https", "grpc"
  Address address;     // port 80 for http and 443 for https when absent; required otherwise
  std::string
      path;  // as given, "" or from its first '/', without a trailing '/': a prefix for request targets
};

/// "scheme://host[:port][/path]"; no user, query or fragment.
absl::StatusOr<Url> ParseUrl(std::string_view text);

}  // namespace kvring::net
