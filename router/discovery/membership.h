// Membership: who belongs to the fleet: backends of the configuration, which stay until they are removed by
// hand, and replicas that register themselves under a lease (lease_table.h). Thread-safe; a thread of its own
// ends expired leases.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/event_loop.h"
#include "router/discovery/lease_table.h"
#include "router/router.h"

namespace kvring::router {

class Membership final : private net::Ticked {
 public:
  explicit Membership(RouterAccess access, Duration lease = kLease);
  ~Membership();

  /// The backends of the configuration are these from now on: new ones are added, changed ones updated, those
  /// that an earlier call named and this one does not are removed. Members from elsewhere (registered, added
  /// by an operator) stay. Errors name the entry: "backends[2].url: …"; then nothing changes.
  absl::Status SetStatic(const std::vector<ReplicaSpec>& backends);
  /// Fleet.Register: the lease in milliseconds. Errors: an address that is no host:port, an epoch of 0.
  absl::StatusOr<uint32_t> Register(const std::string& address, Epoch epoch, std::vector<std::string> models);
  /// No new requests go there; running ones finish. Another epoch than the registered one is nothing.
  void Deregister(const std::string& address, Epoch epoch);
  /// Ends the leases that are over now, where probes fail too.
  void ExpireLeases();

 private:
  void OnTick(Instant now) override;
  void Remove(const std::string& address, std::string_view why);

  const RouterAccess access_;
  absl::Mutex mutex_;  // before the core's
  LeaseTable leases_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> static_ ABSL_GUARDED_BY(mutex_);  // URLs of the configuration
  net::EventLoop loop_;
};

/// The one spelling of a backend's URL: scheme://host:port[/path]; http and grpc only. Two spellings of one
/// place are one member.
absl::StatusOr<std::string> NormalBackendUrl(std::string_view url);

}  // namespace kvring::router
