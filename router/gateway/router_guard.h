// RouterGuard: the live system's one owner of the routing core, behind one mutex. Parsing and hashing happen
// before it is taken; what runs inside is one decision or one report, a few microseconds. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
    return std::forward<Work>(work)(*router_);
  }

 private:
  absl::Mutex mutex_;
  std::unique_ptr<Router> router_ ABSL_GUARDED_BY(mutex_) ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace kvring::router
