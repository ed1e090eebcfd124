// GrpcFleet: the connections to all members with a grpc:// URL, kept in step with the core. Each connection
// tells the core the replica's facts, load, cache events and life (a lost or refused connection and an
// unanswered probe are failed probes). Makes the gRPC upstream of each gateway loop. Thread-safe; destroyed
// after all that sends requests through it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/gateway/exchange_client.h"
#include "router/gateway/router_guard.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

/// One replica behind gRPC, as requests reach it.
class GrpcReplica final : private ExchangeListener {
 public:
  GrpcReplica(RouterGuard& guard, ReplicaId id, std::string name, ExchangeOptions options);

  ExchangeClient& client() { return client_; }
  /// As it told; empty and 0 until connected.
  std::string model() const;
  int32_t block_size() const;

 private:
  void OnInfo(const v1::ReplicaInfo& info) override;
  void OnLoad(const v1::LoadReport& load) override;
  void OnCacheSnapshot(const v1::CacheSnapshot& snapshot) override;
  void OnCacheEvents(const v1::CacheEvents& events) override;
  void OnDown(std::string_view why) override;
  void OnProbe(bool ok) override;
  bool TellProbe(bool ok);

  RouterGuard& guard_;
  const ReplicaId id_;
  const std::string name_;
  const std::string address_;
  mutable absl::Mutex mutex_;
  v1::ReplicaInfo info_ ABSL_GUARDED_BY(mutex_);
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  ExchangeClient client_;  // last: it calls back from its construction to its end
};

class GrpcFleet {
 public:
  /// `options` holds for all members; its address is theirs. Dials the members at once.
  explicit GrpcFleet(RouterGuard& guard, ExchangeOptions options = {});
  ~GrpcFleet();

  /// By URL as in NormalBackendUrl; for connections made from now on. A member whose URL is not among them is
  /// reached in the clear.
  void SetTls(std::map<std::string, GrpcClientTls> by_url);
  /// Null where the replica is no member, or not one behind gRPC. Whoever keeps it lets go before the fleet
  /// ends.
  std::shared_ptr<GrpcReplica> Find(ReplicaId replica);
  /// Follows the core's membership now (it is also followed every few hundred milliseconds).
  void Refresh();
  UpstreamFactory Upstreams();

 private:
  class Follower;
  void Follow(const std::vector<ReplicaView>& views) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Ends the connections of members that left, once their last request has let go.
  void EndRetired();
  void ExpireLate(Instant now);

  RouterGuard& guard_;
  const ExchangeOptions options_;
  absl::Mutex mutex_;
  std::map<std::string, GrpcClientTls> tls_ ABSL_GUARDED_BY(mutex_);
  std::map<ReplicaId, std::shared_ptr<GrpcReplica>> replicas_
      ABSL_GUARDED_BY(mutex_);  // shared with running requests
  std::vector<std::shared_ptr<GrpcReplica>> retired_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Follower> follower_;
};

}  // namespace kvring::router
