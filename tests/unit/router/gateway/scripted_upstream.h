// A replica whose every byte the test writes: a raw TCP server that answers probes by itself and hands each
// other request, whole, to the test's script. Each connection has a thread; all end with the object.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/absl_view.h"
#include "tests/unit/common/net/raw_socket.h"

namespace kvring::test {

class ScriptedUpstream {
 public:
  struct Request {
    std::string head;
    std::string body;
    int number = 0;         // of all requests, from 1
    int on_connection = 0;  // of this connection, from 1

    std::string Field(std::string_view name) const {
      const std::string key = absl::StrCat("\r\n", Absl(name), ": ");
      const size_t at = head.find(key);
      if (at == std::string::npos) return "";
      const size_t first = at + key.size();
      return head.substr(first, head.find("\r\n", first) - first);
    }
  };
  /// Closing the socket ends the connection.
  using Script = std::function<void(RawSocket& socket, const Request& request)>;

  explicit ScriptedUpstream(Script script, std::string model = "m")
      : script_(std::move(script)), model_(std::move(model)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at);
    ::listen(listener_, 128);
    socklen_t size = sizeof at;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~ScriptedUpstream() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    {
      absl::MutexLock lock(&mutex_);
      for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::atomic<bool> silent_to_probes{false};

  uint16_t port() const { return port_; }
  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_); }
  /// What /metrics answers; 404 while empty.
  void SetMetrics(std::string page) {
    absl::MutexLock lock(&mutex_);
    metrics_ = std::move(page);
  }
  int count() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(requests_.size());
  }
  Request last() const {
    absl::MutexLock lock(&mutex_);
    return requests_.empty() ? Request{} : requests_.back();
  }

 private:
  void Accept() {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      absl::MutexLock lock(&mutex_);
      fds_.push_back(fd);
      threads_.emplace_back([this, fd] { Serve(fd); });
    }
  }

  void Serve(int fd) {
    RawSocket socket(fd);
    for (int n = 1; socket.open(); ++n) {
      Request request{.head = socket.ReadUntil("\r\n\r\n", std::chrono::hours(1))};
      if (!request.head.ends_with("\r\n\r\n")) break;
      const std::string length = request.Field("Content-Length");
      if (!length.empty()) request.body = socket.Read(std::stoul(length));
      if (AnswerProbe(socket, request.head)) {
        --n;
        continue;
      }
      {
        absl::MutexLock lock(&mutex_);
        request.number = static_cast<int>(requests_.size()) + 1;
        request.on_connection = n;
        requests_.push_back(request);
      }
      script_(socket, request);
    }
    absl::MutexLock lock(&mutex_);
    std::erase(fds_, fd);
  }

  bool AnswerProbe(RawSocket& socket, const std::string& head) const {
    std::string body;
    if (silent_to_probes && !head.starts_with("POST ")) return true;
    if (head.starts_with("GET /v1/models ")) {
      body = absl::StrCat("{\"object\":\"list\",\"data\":[{\"id\":\"", model_, "\",\"object\":\"model\"}]}");
    } else if (head.starts_with("GET /metrics ")) {
      absl::MutexLock lock(&mutex_);
      body = metrics_;
      if (body.empty()) {
        socket.Send("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
        return true;
      }
    } else if (!head.starts_with("GET /health ")) {
      return false;
    }
    socket.Send(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    return true;
  }

  const Script script_;
  const std::string model_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread acceptor_;
  mutable absl::Mutex mutex_;
  std::string metrics_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> fds_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> threads_;
};

inline std::string Json(int status, std::string_view body, std::string_view lines = "") {
  return absl::StrCat("HTTP/1.1 ", status, " X\r\nContent-Type: application/json\r\n", Absl(lines),
                      "Content-Length: ", body.size(), "\r\n\r\n", Absl(body));
}
inline constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
inline std::string Chunk(std::string_view data) {
  return absl::StrCat(absl::Hex(data.size()), "\r\n", Absl(data), "\r\n");
}
inline std::string Event(std::string_view json) { return absl::StrCat("data: ", Absl(json), "\n\n"); }
inline std::string Delta(std::string_view text) {
  return Event(absl::StrCat("{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", Absl(text), "\"}}]}"));
}

}  // namespace kvring::test
