// RouterGuard: the live system's one owner of the routing core, behind one mutex. Parsing and hashing happen
// before it is taken; what runs inside is one decision or one report, a few microseconds. Whatever makes room
// for requests that wait (an end, a tick, a new replica) goes through here, so here their listeners are told,
// on the thread that made it: a listener hands over to its own thread and does no more. Thread-safe.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "router/router.h"

namespace kvring::router {

class RouterGuard {
 public:
  explicit RouterGuard(std::unique_ptr<Router> router) : router_(std::move(router)) {}

  /// Calls `work(Router&)` alone and returns what it returns. `work` must not block or call back into the
  /// guard.
  template <class Work>
  auto With(Work&& work) {
    absl::MutexLock lock(&mutex_);
    if constexpr (std::is_void_v<std::invoke_result_t<Work, Router&>>) {
      std::forward<Work>(work)(*router_);
      if (router_->MayRelease()) TellReleased();
    } else {
      auto result = std::forward<Work>(work)(*router_);
      if (router_->MayRelease()) TellReleased();
      return result;
    }
  }

 private:
  // Under the lock, so that a listener whose request was completed is never called again.
  void TellReleased() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Released& released : router_->TakeReady(Now())) {
      if (released.listener != nullptr) released.listener->OnReleased(released.id, released.decision);
    }
  }

  absl::Mutex mutex_;
  std::unique_ptr<Router> router_ ABSL_GUARDED_BY(mutex_) ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace kvring::router
