// What idle event streams cost: a `kvring router` as a process of its own before a backend that begins
// streams and then says nothing; memory per open stream, and the latency of other requests beside them.
//   router_idle --kvring build/release/deploy/kvring [--streams 10000] [--requests 20000]
// The router needs two open files a stream: where the limit allows fewer, so many are opened, and it is said.
// Bars: at most 40 KB a stream, p99 of the others at most 1.25 times what it was without them.
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "common/runtime/child_process.h"
#include "tests/unit/common/net/raw_socket.h"

namespace {

using kvring::test::RawSocket;

constexpr int kListenQueue = 4096;
constexpr double kMostKbEach = 40, kMostSlower = 1.25;

std::string Whole(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string kBegun =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "11\r\ndata: {\"a\":\"b\"}\n\n\r\n";

uint16_t BindAnywhere(int fd) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.sin_port);
}

// A process of its own, so that its open files are too. A request is one segment here: what is read is whole.
class Backend {
 public:
  Backend() : listener_(::socket(AF_INET, SOCK_STREAM, 0)), epoll_(::epoll_create1(0)) {
    port_ = BindAnywhere(listener_);
    ::listen(listener_, kListenQueue);
    Watch(listener_);
    if (::fork() == 0) Serve();
    ::close(listener_);
    ::close(epoll_);
  }
  uint16_t port() const { return port_; }

 private:
  void Watch(int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  [[noreturn]] void Serve() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    epoll_event events[256];
    while (true) {
      const int n = ::epoll_wait(epoll_, events, 256, -1);
      for (int i = 0; i < n; ++i) {
        if (events[i].data.fd == listener_) {
          Watch(::accept(listener_, nullptr, nullptr));
        } else {
          Answer(events[i].data.fd);
        }
      }
    }
  }
  void Answer(int fd) {
    char bytes[16 << 10];
    const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
      ::close(fd);
      return;
    }
    const std::string_view request(bytes, static_cast<size_t>(n));
    const bool stream = request.find("\"stream\":true") != std::string_view::npos;
    const std::string answer = stream ? kBegun
                               : request.starts_with("GET /v1/models")
                                   ? Whole(R"({"data":[{"id":"m"}]})")
                                   : Whole(R"({"choices":[],"usage":{"prompt_tokens":9}})");
    ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  }

  int listener_, epoll_;
  uint16_t port_ = 0;
};

std::string Post(bool stream, int number) {
  const std::string body = std::string(R"({"model":"m","stream":)") + (stream ? "true" : "false") +
                           R"(,"messages":[{"role":"user","content":"idle )" + std::to_string(number) +
                           "\"}]}";
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

struct Latency {
  double p50_us, p99_us;
};

Latency Measure(uint16_t port, int requests) {
  RawSocket client = RawSocket::Connect(port);
  std::vector<double> took;
  for (int i = 0; i < requests; ++i) {
    const kvring::Instant begin = kvring::Now();
    client.Send(Post(false, i % 64));
    const std::string head = client.ReadUntil("\r\n\r\n");
    const size_t length = head.find("Content-Length: ");
    if (length == std::string::npos) {
      std::fprintf(stderr, "unexpected answer: %s\n", head.c_str());
      std::exit(1);
    }
    client.Read(std::stoul(head.substr(length + 16)));
    took.push_back(kvring::ToSeconds(kvring::Now() - begin) * 1e6);
  }
  std::sort(took.begin(), took.end());
  return {took[took.size() / 2], took[took.size() * 99 / 100]};
}

double RssKb(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/statm");
  long total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

uint16_t FreePort() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  const uint16_t port = BindAnywhere(probe);
  ::close(probe);
  return port;
}

// With the limit raised as far as it goes; the children inherit it.
int AllowedStreams() {
  constexpr rlim_t kOthers = 100;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>((limit.rlim_cur - kOthers) / 2, 1'000'000));
}

bool Ready(uint16_t port) {
  const kvring::Instant until = kvring::Now() + std::chrono::seconds(10);
  while (kvring::Now() < until) {
    RawSocket client = RawSocket::Connect(port);
    if (client.open() && client.Send(Post(false, 0)) && client.ReadUntil("\r\n").starts_with("HTTP/1.1 200"))
      return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What idle event streams cost the router.");
  std::string kvring;
  int streams = 10'000, requests = 20'000;
  app.add_option("--kvring", kvring)->required();
  app.add_option("--streams", streams);
  app.add_option("--requests", requests);
  CLI11_PARSE(app, argc, argv);

  streams = std::min(streams, AllowedStreams());
  Backend backend;
  const uint16_t port = FreePort();
  const auto router =
      kvring::StartChild({kvring, "router", "--threads", "1", "--listen", "127.0.0.1:" + std::to_string(port),
                          "--backend", "http://127.0.0.1:" + std::to_string(backend.port())});
  if (!router.ok() || !Ready(port)) return std::fprintf(stderr, "router_idle: no router\n"), 1;

  Measure(port, requests / 4);
  const Latency before = Measure(port, requests);
  const double rss_before = RssKb(*router);
  std::vector<RawSocket> open;
  for (int i = 0; i < streams; ++i) {
    open.push_back(RawSocket::Connect(port));
    open.back().Send(Post(true, i));
    if (!open.back().ReadUntil("\n\n").starts_with("HTTP/1.1 200"))
      return std::fprintf(stderr, "router_idle: stream %d did not begin\n", i), 1;
  }
  const double each = (RssKb(*router) - rss_before) / streams;
  const Latency beside = Measure(port, requests);
  const bool small = each <= kMostKbEach, unaffected = beside.p99_us <= kMostSlower * before.p99_us;
  std::printf("| what | figure | bar | |\n|---|---|---|---|\n");
  std::printf("| KB per idle stream, %d open | %.1f | <= %.0f | %s |\n", streams, each, kMostKbEach,
              small ? "PASS" : "FAIL");
  std::printf("| p50 / p99 of other requests, us: without them | %.0f / %.0f | | |\n", before.p50_us,
              before.p99_us);
  std::printf("| the same beside them | %.0f / %.0f | p99 <= %.2f x | %s |\n", beside.p50_us, beside.p99_us,
              kMostSlower, unaffected ? "PASS" : "FAIL");
  kvring::StopChild(*router, 3000);
  return small && unaffected ? 0 : 1;
}
