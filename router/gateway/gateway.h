// Gateway: the router's HTTP front and data path. Per thread one event loop with its own listener and its own
// upstream connections; a request stays on its thread. It decides nothing: routes come from the core behind
// the guard.
//
// Routes: POST /v1/chat/completions and /v1/completions (routed by prompt), everything else under /v1/
// (routed by load, passed through), GET /v1/models (answered here), /healthz, /readyz, /metrics, and whatever
// the admin handler takes. Answers carry x-request-id always, and x-kvring-replica, -reason and
// -predicted-cached-tokens when enabled.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/metrics.h"
#include "common/net/http_server.h"
#include "router/gateway/access.h"
#include "router/gateway/router_guard.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

struct ProbeOptions {
  Duration interval = std::chrono::seconds(1);
  Duration timeout = std::chrono::seconds(1);
};

struct GatewayOptions {
  net::HttpServerOptions http;  // listen, threads, limits
  bool share_port = false;      // let a second process listen on the same port (restarts without a gap)
  UpstreamTimeouts timeouts;
  ProbeOptions probes;
  int max_attempts = 3;  // the first included
  int max_losses = 2;    // a request that lost so many replicas may be what kills them: it is not tried again
  bool decision_headers = true;
  double decision_log_share = 0;  // of requests whose story is logged at their end
  // Where a session's name is looked for, in order: "header:NAME", "body:prompt_cache_key", "body:user".
  std::vector<std::string> session_keys = {"header:X-Session-Id", "body:prompt_cache_key", "body:user"};
  std::shared_ptr<Access> access = std::make_shared<Access>();  // shared with the gRPC front and reloads
  size_t ready_replicas = 1;  // /readyz is 200 when all members, and at least so many, are up
  Duration heartbeat{};       // comment lines on quiet event streams, at event borders only; 0: none
};

/// Answers routes outside /v1/ (admin, dashboard) on the gateway's port; nullopt: not its own, 404. Runs on a
/// loop thread: it must not block.
using AdminHandler = std::function<std::optional<net::HttpResponse>(const net::HttpRequest& request)>;

class Gateway {
 public:
  /// Listens, probes and serves. `guard` and `metrics` outlive the gateway. `grpc` may be empty: then grpc://
  /// replicas fail.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayOptions& options, RouterGuard& guard,
                                                        MetricRegistry& metrics, UpstreamFactory grpc,
                                                        AdminHandler admin);
  ~Gateway();

  uint16_t port() const;
  std::string address() const;
  /// Stops accepting, lets running requests end for at most `deadline`, cuts the rest. Blocks.
  void Stop(Duration deadline);

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A key that all fronts make alike from a session's name.
SessionKey SessionKeyOf(std::string_view session_name);

}  // namespace kvring::router
