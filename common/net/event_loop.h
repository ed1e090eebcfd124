// Internal to the shells (shows Asio): one thread with one io_context. Everything that belongs to a loop is
// touched on its thread only; other threads use Post. Time-outs are coarse: who is watched is called about
// every 100 ms and compares its deadline, which costs less than a timer per connection.
#pragma once

#include <boost/intrusive/list.hpp>
#include <functional>
#include <thread>

#include "common/instant.h"
#include "common/net/asio.h"

namespace kvring::net {

/// Something with deadlines. Unlinks itself when destroyed.
class Ticked
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  /// May destroy or unlink anything, itself too.
  virtual void OnTick(Instant now) = 0;

 protected:
  ~Ticked() = default;
};

class EventLoop {
 public:
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  EventLoop();
  /// Stop and Join.
  ~EventLoop();

  asio::io_context& io() { return io_; }
  void Start();
  /// From any thread, also from its own: the loop ends after the running handler.
  void Stop();
  void Join();
  /// Runs `task` on the loop thread, never inside the call. A stopped loop drops it.
  void Post(std::function<void()> task);
  /// Runs `task` on the loop thread and waits for it; at once if called there or if the loop does not run.
  void Run(const std::function<void()>& task);
  bool OnLoopThread() const { return thread_.get_id() == std::this_thread::get_id(); }

  void Watch(Ticked& ticked) { watched_.push_back(ticked); }

 private:
  using List = boost::intrusive::list<Ticked, boost::intrusive::constant_time_size<false>>;
  void Tick();

  asio::io_context io_;
  asio::steady_timer timer_;
  List watched_;
  std::thread thread_;
};

}  // namespace kvring::net
