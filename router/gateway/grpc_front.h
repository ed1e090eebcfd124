// GrpcFront: the router's gRPC listener: kvring.v1.Inference (Generate, ListModels), Fleet, Admin, the
// standard health service and reflection. It decides nothing: routes come from the core behind the guard;
// attempts are retried, elsewhere, until the first delta, as on the HTTP front. A client's cancellation and
// deadline go to the replica.
//
// Answers carry x-request-id, x-kvring-replica, -reason and -predicted-cached-tokens as initial metadata,
// refusals x-kvring-reason and retry-after as trailing metadata. Built on gRPC's callback API: no threads of
// our own and a third of the code of completion queues, for more CPU per call (the queues measured 22 to 51 %
// less). With API keys, Inference and Fleet need "authorization: Bearer KEY"; Admin needs one too, or without
// keys a loopback peer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "router/gateway/access.h"
#include "router/gateway/grpc_fleet.h"
#include "router/gateway/grpc_tls.h"
#include "router/gateway/router_guard.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

struct GrpcFrontOptions {
  std::string listen = "127.0.0.1:0";
  std::optional<GrpcServerTls> tls;  // absent: in the clear
  bool share_port = false;           // let a second process listen on the same port
  int max_attempts = 3;              // the first included
  int max_losses = 2;                // as on the HTTP front
  size_t max_message_bytes = size_t{64} << 20;
  bool decision_metadata = true;
  double decision_log_share = 0;  // as on the HTTP front
  UpstreamTimeouts timeouts;
  std::shared_ptr<Access> access = std::make_shared<Access>();  // shared with the HTTP front and reloads
};

/// What the front passes on; run on gRPC's threads, must not block.
struct GrpcFrontHooks {
  /// Fleet.Register: the lease in milliseconds, or why not. Empty: Unimplemented.
  std::function<absl::StatusOr<uint32_t>(const std::string& address, Epoch epoch,
                                         std::vector<std::string> models)>
      on_register;
  std::function<void(const std::string& address, Epoch epoch)> on_deregister;
  /// Admin.Why: the record as JSON; nullopt: not known (any more).
  std::function<std::optional<std::string>(std::string_view id)> why_json;
};

class GrpcFront {
 public:
  /// Listens and serves. `guard`, `fleet` and `metrics` outlive the front. Errors name the address.
  static absl::StatusOr<std::unique_ptr<GrpcFront>> Start(const GrpcFrontOptions& options, RouterGuard& guard,
                                                          GrpcFleet& fleet, MetricRegistry& metrics,
                                                          GrpcFrontHooks hooks);
  ~GrpcFront();

  /// As bound.
  std::string address() const;
  /// No new calls; lets running ones end for at most `deadline`, cancels the rest. Blocks.
  void Stop(Duration deadline);

 private:
  class Impl;
  explicit GrpcFront(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::router
