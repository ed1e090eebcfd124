// Internal to the shells (shows Asio): the loops of one server. Each has its own thread, SO_REUSEPORT
// listener and set of client connections; the kernel spreads connections over them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/address.h"
#include "common/net/server_connection.h"

namespace kvring::net {

/// One loop with its listener. All but `count` on the loop's thread.
class ServerLoop : private Ticked {
 public:
  /// `closing` is locked and unlocked at each close once CloseAllSoon was called, which wakes who awaits a
  /// condition on it.
  ServerLoop(const HttpServerOptions& options, size_t max_connections, absl::Mutex& closing);
  ~ServerLoop();

  EventLoop& loop() { return loop_; }
  void Open(tcp::acceptor acceptor, ServerUser& user);
  void StopAccepting();
  void CloseAllSoon();
  void CutAll();
  size_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  using AllList = boost::intrusive::list<
      ServerConnection,
      boost::intrusive::member_hook<ServerConnection, ConnectionHook, &ServerConnection::all_hook>,
      boost::intrusive::constant_time_size<false>>;
  using IdleList = boost::intrusive::list<
      ServerConnection,
      boost::intrusive::member_hook<ServerConnection, ConnectionHook, &ServerConnection::idle_hook>,
      boost::intrusive::constant_time_size<false>>;
  void Accept();
  void Admit(tcp::socket socket);
  void OnClosed();
  static void Refuse(tcp::socket socket);
  void OnTick(Instant now) override;

  const HttpServerOptions& options_;
  const size_t max_connections_;
  absl::Mutex& closing_;
  bool draining_ = false;
  std::atomic<size_t> count_{0};
  AllList all_;
  IdleList idle_;  // longest idle first
  EventLoop loop_;
  std::unique_ptr<tcp::acceptor> acceptor_;
  ServerUser* user_ = nullptr;
  bool accepting_ =
      false;  // an accept is pending; false after an error (out of descriptors): tried again at the next tick
};

class ServerGroup {
 public:
  /// Binds `options.threads` listeners to one port. Two processes on one port only where `share_port` asks
  /// for it.
  static absl::StatusOr<std::unique_ptr<ServerGroup>> Bind(const HttpServerOptions& options, bool share_port);
  ~ServerGroup();

  size_t size() const { return loops_.size(); }
  ServerLoop& at(size_t i) { return *loops_[i]; }
  const Address& address() const { return address_; }
  size_t connections() const;

  /// Starts the threads; `user_of(i)` handles loop i and outlives Stop.
  void Start(const std::function<ServerUser&(size_t)>& user_of);
  /// Stops accepting, closes idle connections, and waits until the others have had their answers or
  /// `deadline` has passed.
  void Drain(Duration deadline);
  /// Cuts what is left and ends the threads.
  void Stop();

 private:
  explicit ServerGroup(const HttpServerOptions& options) : options_(options) {}

  const HttpServerOptions options_;
  Address address_;
  absl::Mutex closing_;
  std::vector<std::unique_ptr<ServerLoop>> loops_;
  std::vector<tcp::acceptor> acceptors_;  // bound, until Start
  bool running_ = false;
};

}  // namespace kvring::net
