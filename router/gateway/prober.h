// Internal to the gateway (shows Asio): active probes of HTTP replicas, on a loop of their own: GET /health,
// where that is unknown /healthz, then /v1/models; the models served are read once a replica is up, load and
// KV capacity after each good probe (engine_metrics.h). Results go to the core, which judges. Also the core's
// clock: Tick every 100 ms. Replicas behind gRPC are not
// probed: their stream shows their life.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/net/event_loop.h"
#include "router/gateway/endpoint_directory.h"
#include "router/gateway/gateway.h"
#include "router/gateway/http_upstream.h"

namespace kvring::router {

class Prober final : private net::Ticked {
 public:
  Prober(RouterGuard& guard, EndpointDirectory& directory, const ProbeOptions& options);
  ~Prober();

  void Start();
  void Stop();

 private:
  class Probe;
  void OnTick(Instant now) override;
  void FollowMembers(Instant now);

  static constexpr Duration kFollowInterval = std::chrono::milliseconds(300);

  RouterGuard& guard_;
  EndpointDirectory& directory_;
  const ProbeOptions options_;
  HttpUpstreamCounters counters_;  // of probes: not shown
  net::EventLoop loop_;
  HttpUpstream upstream_;
  void LogNewWarnings(Instant now);

  std::map<ReplicaId, std::unique_ptr<Probe>> probes_;
  std::set<std::string> warned_;  // warnings that stand, each logged once
  Instant warn_at_{};
  Instant follow_at_{};
};

/// Ids of `{"data":[{"id":…}…]}`; empty if the text is something else.
std::vector<std::string> ParseModelIds(std::string_view json);

}  // namespace kvring::router
