// ReplicaAdmin: what an operator does to one replica, over gRPC. A replica has no keys: callers on its own
// machine only (over HTTP likewise, see http_service.h). Thread-safe.
#pragma once

#include <string_view>

#include "kvring/v1/admin.grpc.pb.h"
#include "replica/server/engine_loop.h"

namespace kvring::replica {

/// gRPC's name of a peer: "ipv4:127.0.0.1:5", "ipv6:[::1]:5" (or with the brackets escaped), "unix:…".
bool IsLoopbackPeer(std::string_view peer);

class ReplicaAdmin : public v1::ReplicaAdmin::CallbackService {
 public:
  /// `loop` must outlive every call.
  explicit ReplicaAdmin(EngineLoop& loop) : loop_(loop) {}

  /// PERMISSION_DENIED for other machines; UNAVAILABLE when the replica is stopping.
  grpc::ServerUnaryReactor* ResetCache(grpc::CallbackServerContext* context,
                                       const v1::ResetCacheRequest* request,
                                       v1::ResetCacheResponse* response) override;

 private:
  EngineLoop& loop_;
};

}  // namespace kvring::replica
