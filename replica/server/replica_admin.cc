#include "replica/server/replica_admin.h"

namespace kvring::replica {

bool IsLoopbackPeer(std::string_view peer) {
  for (const std::string_view local :
       {"ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:", "ipv6:[::ffff:127.", "ipv6:%5B::ffff:127.", "unix:"}) {
    if (peer.starts_with(local)) return true;
  }
  return false;
}

grpc::ServerUnaryReactor* ReplicaAdmin::ResetCache(grpc::CallbackServerContext* context,
                                                   const v1::ResetCacheRequest*,
                                                   v1::ResetCacheResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!IsLoopbackPeer(context->peer())) {
    reactor->Finish(
        {grpc::StatusCode::PERMISSION_DENIED, "The replica's admin calls answer loopback peers only."});
    return reactor;
  }
  loop_.ResetCache([reactor, response](const absl::StatusOr<int64_t>& dropped) {
    if (!dropped.ok())
      return reactor->Finish({grpc::StatusCode::UNAVAILABLE, std::string(dropped.status().message())});
    response->set_dropped_tokens(*dropped);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace kvring::replica
