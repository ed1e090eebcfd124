#include "common/net/event_loop.h"

#include <memory>

#include "absl/synchronization/notification.h"
#include "common/runtime/clock.h"

namespace kvring::net {

// Only the loop's thread touches its sockets, so the reactor needs no locks; posting from elsewhere still has
// them.
EventLoop::EventLoop() : io_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO), timer_(io_) {}

EventLoop::~EventLoop() {
  Stop();
  Join();
}

void EventLoop::Start() {
  Tick();
  thread_ = std::thread([this] { io_.run(); });
}

void EventLoop::Stop() { io_.stop(); }

void EventLoop::Join() {
  if (thread_.joinable()) thread_.join();
}

void EventLoop::Post(std::function<void()> task) { asio::post(io_, std::move(task)); }

void EventLoop::Run(const std::function<void()>& task) {
  if (!thread_.joinable() || OnLoopThread()) return task();
  // Shared: the waiter may be gone while Notify is still on its way out.
  const auto done = std::make_shared<absl::Notification>();
  Post([&task, done] {
    task();
    done->Notify();
  });
  done->WaitForNotification();
}

void EventLoop::Tick() {
  timer_.expires_after(kTick);
  timer_.async_wait([this](const ErrorCode& error) {
    if (error) return;
    List batch;
    batch.swap(watched_);
    const Instant now = Now();
    while (!batch.empty()) {
      Ticked& next = batch.front();
      batch.pop_front();
      watched_.push_back(next);
      next.OnTick(now);
    }
    Tick();
  });
}

}  // namespace kvring::net
