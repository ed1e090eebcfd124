// HttpClient: a small blocking HTTP/1.1 client for probes, the command line and tests. One connection per
// client, kept between requests and opened anew when it was closed meanwhile; nothing is retried after a byte
// of an answer has come. http:// only: Connect is the one place that would make a TLS stream. Not
// thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "common/net/address.h"
#include "common/net/http_message.h"

namespace kvring::net {

struct HttpClientOptions {
  Duration connect_timeout = std::chrono::seconds(5);
  Duration timeout = std::chrono::seconds(60);  // of a whole request, connecting included
  size_t max_body_bytes = size_t{64} << 20;     // of an answer that is collected
};

class HttpClient {
 public:
  /// Body bytes as they come, de-chunked. Returning false ends the request (the connection is closed).
  using OnBody = std::function<bool(std::string_view bytes)>;

  explicit HttpClient(Address address, HttpClientOptions options = {});
  ~HttpClient();

  /// Errors: Unavailable (refused, reset, closed early), DeadlineExceeded, InvalidArgument (no HTTP),
  /// ResourceExhausted. Any status is an answer. Host and Content-Length are added.
  absl::StatusOr<HttpResponse> Send(std::string_view method, std::string_view target,
                                    const Headers& headers = {}, std::string_view body = {});
  absl::StatusOr<HttpResponse> Get(std::string_view target) { return Send("GET", target); }
  /// The body goes to `on_body`; the response's own body is empty. Cancelled when on_body returned false.
  absl::StatusOr<HttpResponse> Stream(std::string_view method, std::string_view target,
                                      const Headers& headers, std::string_view body, const OnBody& on_body);
  void Close();

 private:
  class Connection;
  absl::StatusOr<HttpResponse> Exchange(std::string_view bytes, bool head_request, const OnBody& on_body);

  const Address address_;
  const HttpClientOptions options_;
  std::unique_ptr<Connection> connection_;  // null: not connected
};

}  // namespace kvring::net
