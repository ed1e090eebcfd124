#include "common/net/server_group.h"

#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/absl_view.h"
#include "common/net/http_fault.h"
#include "common/status_macros.h"

namespace kvring::net {
namespace {

constexpr int kBacklog = 4096;

absl::Status BindError(const Address& address, std::string_view step, const ErrorCode& error) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", Absl(step), ": ", error.message()));
}

absl::StatusOr<tcp::endpoint> ResolveListen(asio::io_context& io, const Address& address) {
  ErrorCode error;
  const auto ip = asio::ip::make_address(address.host, error);
  if (!error) return tcp::endpoint(ip, address.port);
  tcp::resolver resolver(io);
  const auto results = resolver.resolve(address.host, std::to_string(address.port), error);
  if (error || results.empty()) return BindError(address, "resolve", error);
  return results.begin()->endpoint();
}

// Without SO_REUSEPORT: fails if any other process listens there, whatever options it set.
absl::Status CheckFree(asio::io_context& io, const Address& address, const tcp::endpoint& endpoint) {
  tcp::acceptor probe(io);
  ErrorCode error;
  probe.open(endpoint.protocol(), error);
  if (!error) probe.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) probe.bind(endpoint, error);
  if (!error) probe.listen(1, error);
  return error ? BindError(address, "bind", error) : absl::OkStatus();
}

absl::StatusOr<tcp::acceptor> Listen(asio::io_context& io, const Address& address,
                                     const tcp::endpoint& endpoint) {
  tcp::acceptor acceptor(io);
  ErrorCode error;
  acceptor.open(endpoint.protocol(), error);
  if (error) return BindError(address, "socket", error);
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  const int on = 1;
  if (::setsockopt(acceptor.native_handle(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    return BindError(address, "SO_REUSEPORT", ErrorCode(errno, boost::system::system_category()));
  }
  acceptor.bind(endpoint, error);
  if (error) return BindError(address, "bind", error);
  acceptor.listen(kBacklog, error);
  if (error) return BindError(address, "listen", error);
  return acceptor;
}

}  // namespace

ServerLoop::ServerLoop(const HttpServerOptions& options, size_t max_connections, absl::Mutex& closing)
    : options_(options), max_connections_(max_connections), closing_(closing) {}

ServerLoop::~ServerLoop() = default;

void ServerLoop::Open(tcp::acceptor acceptor, ServerUser& user) {
  user_ = &user;
  acceptor_ = std::make_unique<tcp::acceptor>(std::move(acceptor));
  loop_.Watch(*this);
  Accept();
}

void ServerLoop::Accept() {
  accepting_ = true;
  acceptor_->async_accept([this](const ErrorCode& error, tcp::socket socket) {
    accepting_ = false;
    if (error == asio::error::operation_aborted || !acceptor_) return;
    if (error) return;
    Admit(std::move(socket));
    Accept();
  });
}

void ServerLoop::OnTick(Instant) {
  if (acceptor_ && !accepting_) Accept();
}

void ServerLoop::Admit(tcp::socket socket) {
  if (count() >= max_connections_) {
    if (idle_.empty()) return Refuse(std::move(socket));
    idle_.front().CloseSoon();
  }
  ServerConnection::Pointer connection(new ServerConnection(std::move(socket), loop_, options_, *user_));
  all_.push_back(*connection);
  idle_.push_back(*connection);
  count_.fetch_add(1, std::memory_order_relaxed);
  connection->on_closed = [this] { OnClosed(); };
  connection->on_idle = [this](ServerConnection& idle) { idle_.push_back(idle); };
  connection->Start();
}

void ServerLoop::OnClosed() {
  count_.fetch_sub(1, std::memory_order_relaxed);
  if (draining_) absl::MutexLock wake(&closing_);
}

void ServerLoop::Refuse(tcp::socket socket) {
  const std::string body = FaultBody({503, "Too many connections."});
  const std::string answer = absl::StrCat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
      "\r\nRetry-After: 1\r\nConnection: close\r\n\r\n", body);
  (void)::send(socket.native_handle(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Connections that the kernel has taken already are served: closing the listener would reset them, which
// their clients would notice where another process goes on listening on the port.
void ServerLoop::StopAccepting() {
  if (!acceptor_) return;
  ErrorCode error;
  acceptor_->cancel(error);
  acceptor_->non_blocking(true, error);
  while (!error) {
    tcp::socket socket(loop_.io());
    acceptor_->accept(socket, error);
    if (!error) Admit(std::move(socket));
  }
  acceptor_.reset();
}

void ServerLoop::CloseAllSoon() {
  draining_ = true;
  for (auto it = all_.begin(); it != all_.end();) (it++)->CloseSoon();
}

void ServerLoop::CutAll() {
  while (!all_.empty()) all_.front().Cut();
}

absl::StatusOr<std::unique_ptr<ServerGroup>> ServerGroup::Bind(const HttpServerOptions& options,
                                                               bool share_port) {
  KVRING_ASSIGN_OR_RETURN(Address address, ParseAddress(options.listen));
  std::unique_ptr<ServerGroup> group(new ServerGroup(options));
  const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads) : 1;
  const size_t share = (options.max_connections + threads - 1) / threads;
  for (size_t i = 0; i < threads; ++i)
    group->loops_.push_back(std::make_unique<ServerLoop>(group->options_, share, group->closing_));
  KVRING_ASSIGN_OR_RETURN(tcp::endpoint endpoint, ResolveListen(group->at(0).loop().io(), address));
  if (!share_port && endpoint.port() != 0)
    KVRING_RETURN_IF_ERROR(CheckFree(group->at(0).loop().io(), address, endpoint));
  for (auto& loop : group->loops_) {
    KVRING_ASSIGN_OR_RETURN(tcp::acceptor acceptor, Listen(loop->loop().io(), address, endpoint));
    ErrorCode error;
    endpoint = acceptor.local_endpoint(error);  // the port that the first one got
    if (error) return BindError(address, "getsockname", error);
    group->acceptors_.push_back(std::move(acceptor));
  }
  group->address_ = {.host = address.host, .port = endpoint.port()};
  return group;
}

ServerGroup::~ServerGroup() { Stop(); }

void ServerGroup::Start(const std::function<ServerUser&(size_t)>& user_of) {
  for (size_t i = 0; i < loops_.size(); ++i) {
    loops_[i]->Open(std::move(acceptors_[i]), user_of(i));
    loops_[i]->loop().Start();
  }
  acceptors_.clear();
  running_ = true;
}

size_t ServerGroup::connections() const {
  size_t total = 0;
  for (const auto& loop : loops_) total += loop->count();
  return total;
}

void ServerGroup::Drain(Duration deadline) {
  if (!running_) return;
  for (auto& loop : loops_) {
    loop->loop().Run([&] {
      loop->StopAccepting();
      loop->CloseAllSoon();
    });
  }
  absl::MutexLock lock(&closing_);
  const auto closed = +[](ServerGroup* group) { return group->connections() == 0; };
  closing_.AwaitWithTimeout(absl::Condition(closed, this), absl::FromChrono(deadline));
}

void ServerGroup::Stop() {
  if (!running_) return;
  running_ = false;
  for (auto& loop : loops_) {
    loop->loop().Run([&] {
      loop->StopAccepting();
      loop->CutAll();
    });
    loop->loop().Stop();
    loop->loop().Join();
  }
}

}  // namespace kvring::net
