// EndpointDirectory: how each member of the router's fleet is reached, kept in step with the core.
// Thread-safe; loops keep their own copies of entries, which never change but for their flags: a member whose
// key changed gets a new one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/gateway/access.h"
#include "router/gateway/router_guard.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

class EndpointDirectory {
 public:
  EndpointDirectory(RouterGuard& guard, std::shared_ptr<const Access> access)
      : guard_(guard), access_(std::move(access)) {}

  /// Null if the replica is no member, or its URL cannot be read.
  std::shared_ptr<Endpoint> Find(ReplicaId replica);
  /// Follows the core's membership; returns all members.
  std::vector<std::shared_ptr<Endpoint>> Refresh();

 private:
  void Follow(const std::vector<ReplicaView>& views) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  RouterGuard& guard_;
  const std::shared_ptr<const Access> access_;  // shared with the fronts
  absl::Mutex mutex_;
  std::map<ReplicaId, std::shared_ptr<Endpoint>> endpoints_
      ABSL_GUARDED_BY(mutex_);  // shared with running requests
};

}  // namespace kvring::router
