#include "deploy/cli/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace kvring::cli {
namespace {

// A socket bound to a port that the system chose; -1 on failure.
int BindAny(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, generic, size) != 0 || getsockname(fd, generic, &size) != 0) return -1;
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

absl::StatusOr<std::vector<int>> FreePorts(int count) {
  std::vector<int> ports(static_cast<size_t>(count));
  std::vector<int> sockets;
  bool ok = true;
  for (int& port : ports) {  // all held at once, so that all differ
    sockets.push_back(BindAny(port));
    ok = ok && sockets.back() >= 0;
  }
  const int error = errno;
  for (int fd : sockets) {
    if (fd >= 0) close(fd);
  }
  if (!ok) return absl::ErrnoToStatus(error, "no free port");
  return ports;
}

}  // namespace kvring::cli
