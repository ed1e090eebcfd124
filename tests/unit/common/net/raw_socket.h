// Raw TCP for tests of wire behaviour: a client that sends and sees exact bytes, with deadlines instead of
// sleeps.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/runtime/clock.h"

namespace kvring::test {

/// A connected socket. Reads wait for at most 10 s and then give what is there.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)), end_(other.end_) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    in_ = std::move(other.in_);
    end_ = other.end_;
    return *this;
  }
  ~RawSocket() { Close(); }

  static RawSocket Connect(uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      ::close(fd);
      return RawSocket(-1);
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return RawSocket(fd);
  }

  bool open() const { return fd_ >= 0; }
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  /// Everything up to and with `mark`; what is there if the peer closes or time runs out first.
  std::string ReadUntil(std::string_view mark, Duration limit = std::chrono::seconds(10)) {
    size_t at;
    while ((at = in_.find(mark)) == std::string::npos) {
      if (!Fill(limit)) return std::exchange(in_, {});
    }
    std::string out = in_.substr(0, at + mark.size());
    in_.erase(0, out.size());
    return out;
  }
  std::string Read(size_t bytes) {
    while (in_.size() < bytes && Fill(std::chrono::seconds(10))) {
    }
    std::string out = in_.substr(0, bytes);
    in_.erase(0, out.size());
    return out;
  }
  /// Until the peer closes.
  std::string ReadAll(Duration limit = std::chrono::seconds(10)) {
    while (Fill(limit)) {
    }
    return std::exchange(in_, {});
  }
  /// Whether the peer closes (FIN or RST) within the time; bytes before are kept.
  bool ClosedWithin(Duration limit) {
    const Instant end = Now() + limit;
    while (!end_ && Now() < end) Fill(end - Now());
    return end_;
  }
  /// A response with a Content-Length, or all until close.
  std::string ReadResponse() {
    std::string head = ReadUntil("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    return head + Read(std::stoul(head.substr(at + 16)));
  }

  void FinishSending() { ::shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void Reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    Close();
  }
  int fd() const { return fd_; }

 private:
  bool Fill(Duration limit) {
    if (end_ || fd_ < 0) return false;
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, static_cast<int>(limit.count() / 1'000'000) + 1) <= 0) return false;
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    end_ = n <= 0;
    if (n > 0) in_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  int fd_;
  std::string in_;
  bool end_ = false;
};

}  // namespace kvring::test
