// HTTP messages as owned values, for handlers, clients and tests; the hot path works on views (http_parser.h)
// instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvring::net {

/// Fields in the order of the wire; names keep their spelling, comparisons ignore ASCII case.
using Headers = std::vector<std::pair<std::string, std::string>>;

bool EqualIgnoringCase(std::string_view a, std::string_view b);
/// The first field of that name.
std::optional<std::string_view> FindHeader(const Headers& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // "GET", "POST", … as sent
  std::string target;  // path and query as sent, always starting with '/'
  Headers headers;
  std::string body;  // de-chunked
  std::string peer;  // "127.0.0.1:43210", "[::1]:43210": the socket's, whatever headers say
  bool peer_is_loopback = false;

  /// The target up to '?'.
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  std::optional<std::string_view> header(std::string_view name) const { return FindHeader(headers, name); }
};

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;

  std::optional<std::string_view> header(std::string_view name) const { return FindHeader(headers, name); }
};

/// "OK", "Not Found", …; "Status" for a number without a name here.
std::string_view ReasonPhrase(int status);

/// A response whose body is JSON.
HttpResponse JsonResponse(int status, std::string body);

/// Value of `name` in the query part of a target, percent-decoded; nullopt when absent.
std::optional<std::string> QueryParameter(std::string_view target, std::string_view name);

}  // namespace kvring::net
