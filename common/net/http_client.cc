#include "common/net/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/net/http_parser.h"
#include "common/runtime/clock.h"
#include "common/status_macros.h"

namespace kvring::net {
namespace {

absl::Status Timeout(std::string_view step) {
  return absl::DeadlineExceededError(absl::StrCat("timed out: ", Absl(step)));
}
absl::Status Broken(std::string_view step, int error) {
  return absl::UnavailableError(
      absl::StrCat(Absl(step), ": ", error == 0 ? "closed by the server" : std::strerror(error)));
}

// Waits for `events`; the rest of the time until `deadline` at most.
absl::Status Await(int fd, short events, Instant deadline, std::string_view step) {
  while (true) {
    const int64_t left_ms = (deadline - Now()).count() / 1'000'000 + 1;
    if (left_ms <= 0) return Timeout(step);
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int n = ::poll(&entry, 1, static_cast<int>(left_ms));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return Broken(step, errno);
  }
}

}  // namespace

class HttpClient::Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Address& address, Instant deadline);
  ~Connection() { ::close(fd_); }

  absl::Status SendAll(std::string_view bytes, Instant deadline);
  /// Reads one answer. `any_byte` tells whether anything came, also on an error.
  absl::StatusOr<HttpResponse> Receive(bool head_request, const OnBody& on_body, Instant deadline,
                                       bool& any_byte);
  bool reusable() const { return reusable_; }
  bool used = false;

 private:
  explicit Connection(int fd) : fd_(fd) {}
  absl::Status Fill(Instant deadline);
  absl::Status ReadHead(bool head_request, Instant deadline, bool& any_byte, ResponseHeadView& view);
  absl::Status ReadBody(const ResponseHeadView& view, const OnBody& on_body, Instant deadline);
  absl::Status ReadChunked(const OnBody& on_body, Instant deadline);

  int fd_;
  std::string in_;
  bool end_ = false;
  bool reusable_ = false;
};

absl::StatusOr<std::unique_ptr<HttpClient::Connection>> HttpClient::Connection::Open(const Address& address,
                                                                                     Instant deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error =
          ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found)) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", address.host, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return Broken("socket", errno);
    std::unique_ptr<Connection> connection(new Connection(fd));
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int error = ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      last = Await(fd, POLLOUT, deadline, absl::StrCat("connect to ", address.ToString()));
      if (!last.ok()) continue;
      socklen_t size = sizeof error;
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return connection;
    last = Broken(absl::StrCat("connect to ", address.ToString()), error);
  }
  return last;
}

absl::Status HttpClient::Connection::SendAll(std::string_view bytes, Instant deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      KVRING_RETURN_IF_ERROR(Await(fd_, POLLOUT, deadline, "send"));
    } else if (errno != EINTR) {
      return Broken("send", errno);
    }
  }
  return absl::OkStatus();
}

// Appends what comes to in_, or sets end_.
absl::Status HttpClient::Connection::Fill(Instant deadline) {
  char bytes[16 << 10];
  while (true) {
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n >= 0) {
      end_ = n == 0;
      in_.append(bytes, static_cast<size_t>(n));
      return absl::OkStatus();
    }
    if (errno == EAGAIN) {
      KVRING_RETURN_IF_ERROR(Await(fd_, POLLIN, deadline, "answer"));
    } else if (errno != EINTR) {
      return Broken("receive", errno);
    }
  }
}

absl::Status HttpClient::Connection::ReadHead(bool head_request, Instant deadline, bool& any_byte,
                                              ResponseHeadView& view) {
  HeadScanner scanner;
  while (scanner.Scan(in_) != HeadScanner::State::kComplete) {
    if (scanner.fault()) return absl::InvalidArgumentError(Absl(scanner.fault().message));
    KVRING_RETURN_IF_ERROR(Fill(deadline));
    any_byte = any_byte || !in_.empty();
    if (end_) return Broken("answer", 0);
  }
  const HttpFault fault =
      ParseResponseHead(std::string_view(in_).substr(0, scanner.head_bytes()), head_request, view);
  return fault ? absl::InvalidArgumentError(Absl(fault.message)) : absl::OkStatus();
}

absl::StatusOr<HttpResponse> HttpClient::Connection::Receive(bool head_request, const OnBody& on_body,
                                                             Instant deadline, bool& any_byte) {
  ResponseHeadView view;
  HttpResponse response;
  do {  // interim answers (1xx) are passed over
    KVRING_RETURN_IF_ERROR(ReadHead(head_request, deadline, any_byte, view));
    response = {.status = view.status};
    for (const HeaderField& field : view.fields) response.headers.emplace_back(field.name, field.value);
    in_.erase(0, in_.find("\r\n\r\n") + 4);
  } while (view.status < 200);
  KVRING_RETURN_IF_ERROR(ReadBody(view, on_body, deadline));
  reusable_ = view.keep_alive && in_.empty();
  return response;
}

absl::Status HttpClient::Connection::ReadBody(const ResponseHeadView& view, const OnBody& on_body,
                                              Instant deadline) {
  if (view.framing == BodyFraming::kNone) return absl::OkStatus();
  if (view.framing == BodyFraming::kChunked) return ReadChunked(on_body, deadline);
  const bool until_close = view.framing == BodyFraming::kUntilClose;
  uint64_t left = until_close ? UINT64_MAX : view.content_length;
  while (left > 0) {
    const std::string_view piece = std::string_view(in_).substr(0, left);
    if (!piece.empty() && !on_body(piece)) return absl::CancelledError("the body was not wanted further");
    left -= piece.size();
    in_.erase(0, piece.size());
    if (left == 0) break;
    if (end_) return until_close ? absl::OkStatus() : Broken("body", 0);
    KVRING_RETURN_IF_ERROR(Fill(deadline));
  }
  return absl::OkStatus();
}

absl::Status HttpClient::Connection::ReadChunked(const OnBody& on_body, Instant deadline) {
  ChunkedDecoder decoder;
  while (true) {
    std::string_view input = in_;
    std::string_view data;
    ChunkedDecoder::Step step;
    while ((step = decoder.Next(input, data)) == ChunkedDecoder::Step::kData) {
      if (!on_body(data)) return absl::CancelledError("the body was not wanted further");
    }
    in_.erase(0, in_.size() - input.size());
    if (step == ChunkedDecoder::Step::kDone) return absl::OkStatus();
    if (step == ChunkedDecoder::Step::kFault)
      return absl::InvalidArgumentError("the chunked body is malformed");
    if (end_) return Broken("chunked body", 0);
    KVRING_RETURN_IF_ERROR(Fill(deadline));
  }
}

HttpClient::HttpClient(Address address, HttpClientOptions options)
    : address_(std::move(address)), options_(options) {}
HttpClient::~HttpClient() = default;
void HttpClient::Close() { connection_.reset(); }

absl::StatusOr<HttpResponse> HttpClient::Send(std::string_view method, std::string_view target,
                                              const Headers& headers, std::string_view body) {
  std::string collected;
  bool too_large = false;
  auto response = Stream(method, target, headers, body, [&](std::string_view bytes) {
    too_large = collected.size() + bytes.size() > options_.max_body_bytes;
    if (!too_large) collected.append(bytes);
    return !too_large;
  });
  if (too_large)
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer is larger than ", options_.max_body_bytes, " bytes"));
  if (response.ok()) response->body = std::move(collected);
  return response;
}

absl::StatusOr<HttpResponse> HttpClient::Stream(std::string_view method, std::string_view target,
                                                const Headers& headers, std::string_view body,
                                                const OnBody& on_body) {
  std::string bytes =
      absl::StrCat(Absl(method), " ", Absl(target), " HTTP/1.1\r\nHost: ", address_.ToString(), "\r\n");
  for (const auto& [name, value] : headers) absl::StrAppend(&bytes, name, ": ", value, "\r\n");
  if (!body.empty() || method == "POST" || method == "PUT")
    absl::StrAppend(&bytes, "Content-Length: ", body.size(), "\r\n");
  absl::StrAppend(&bytes, "\r\n", Absl(body));
  return Exchange(bytes, method == "HEAD", on_body);
}

// A kept connection that died unused is replaced once, as long as nothing of an answer came.
absl::StatusOr<HttpResponse> HttpClient::Exchange(std::string_view bytes, bool head_request,
                                                  const OnBody& on_body) {
  const Instant deadline = Now() + options_.timeout;
  while (true) {
    if (!connection_) {
      KVRING_ASSIGN_OR_RETURN(
          connection_, Connection::Open(address_, std::min(deadline, Now() + options_.connect_timeout)));
    }
    std::unique_ptr<Connection> connection = std::move(connection_);
    const bool was_used = std::exchange(connection->used, true);
    bool any_byte = false;
    const absl::Status sent = connection->SendAll(bytes, deadline);
    if (!sent.ok() && !absl::IsUnavailable(sent)) return sent;
    // Also after a failed send: an early answer (413) may be there.
    absl::StatusOr<HttpResponse> response = connection->Receive(head_request, on_body, deadline, any_byte);
    const bool stale = was_used && !any_byte && absl::IsUnavailable(response.status());
    if (response.ok() && connection->reusable()) connection_ = std::move(connection);
    if (!stale) return response;
  }
}

}  // namespace kvring::net
