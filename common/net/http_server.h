// HttpServer: HTTP/1.1 for what is not the router's data path: the replica's OpenAI service, the admin API,
// tests. Each of its threads has its own event loop and SO_REUSEPORT listener. Keep-alive, Expect:
// 100-continue, chunked bodies both ways, limits with OpenAI-shaped error answers (400, 408, 413, 431, 503),
// one request of a connection at a time.
//
// The handler runs on a loop thread and must not block: it takes the request and the writer and either
// answers at once or moves the writer to whoever will. A ResponseWriter may be used from any thread, also
// from several (calls are serialised); it never blocks. It outlives the connection and the server safely:
// calls on it then do nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "common/net/http_message.h"

namespace kvring::net {

/// What became of a Write.
enum class WriteState {
  kOpen,       // taken
  kCongested,  // taken, but the client reads slowly: more than `congested_bytes` wait; OnDrained tells when
               // they are gone
  kGone,  // the client is gone (or too slow: `max_buffered_bytes`); nothing was taken and nothing will be
};

/// The answer to one request: Start, Write…, Finish; or Reply alone. Destroyed before that: 500 if nothing
/// was sent, otherwise the connection is cut so that no client takes the answer for whole.
class ResponseWriter {
 public:
  class Impl;
  explicit ResponseWriter(std::shared_ptr<Impl> impl);
  ResponseWriter(ResponseWriter&&) noexcept;
  ResponseWriter& operator=(ResponseWriter&&) noexcept;
  ~ResponseWriter();

  /// Sends the head. Without a Content-Length among `headers` the body is chunked (HTTP/1.0: until close).
  void Start(int status, const Headers& headers);
  /// Sends body bytes at once (TCP_NODELAY); an empty chunk is nothing. Use one call per engine step, not per
  /// token.
  WriteState Write(std::string_view chunk);
  void Finish();
  /// A whole answer with its Content-Length.
  void Reply(int status, const Headers& headers, std::string_view body);
  void Reply(const HttpResponse& response) { Reply(response.status, response.headers, response.body); }
  /// Cuts the connection without a clean end: the client sees an incomplete transfer.
  void Abort();

  /// Called once if the client goes away (FIN, RST, error, server stop) before Finish: on a loop thread, or
  /// at once in this call if it is gone already. Never after Finish, Reply or Abort has returned.
  void OnDisconnect(std::function<void()> callback);
  /// Called on a loop thread each time the waiting bytes fall to zero after a kCongested.
  void OnDrained(std::function<void()> callback);
  bool gone() const;

 private:
  std::shared_ptr<Impl> impl_;  // shared with the connection: either may end first
};

struct HttpServerOptions {
  std::string listen = "127.0.0.1:0";  // port 0: any free one, see port()
  int threads = 1;
  size_t max_header_bytes = 64 << 10;  // more: 431
  size_t max_headers = 128;            // more: 431
  size_t max_body_bytes =
      size_t{32} << 20;             // more: 413, before the rest is read where its length is declared
  size_t max_connections = 20'000;  // beyond: the longest idle one is closed, else 503 and close
  Duration header_timeout = std::chrono::seconds(10);  // from the first byte of a head: 408
  Duration idle_timeout = std::chrono::seconds(75);    // between requests: close
  double body_min_bytes_per_second = 500;  // mean of a body, judged after header_timeout; below: 408
  size_t congested_bytes = 256 << 10;
  size_t max_buffered_bytes = 8 << 20;  // of one answer; a client that lets more wait is cut
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest request, ResponseWriter writer)>;

  /// Listens and serves. Errors name the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, Handler handler);
  /// Stop(0) if still running.
  ~HttpServer();

  uint16_t port() const;
  /// "127.0.0.1:8080" as bound.
  std::string address() const;
  size_t connections() const;

  /// Stops accepting, lets running requests finish for at most `deadline`, cuts the rest, ends the threads.
  /// Blocks; not from a handler.
  void Stop(Duration deadline);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::net
