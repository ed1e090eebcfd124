// Internal to the gateway (shows Asio): what the requests of one thread share: upstreams, endpoint cache,
// scratch memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/net/server_group.h"
#include "router/gateway/decision_sampler.h"
#include "router/gateway/endpoint_directory.h"
#include "router/gateway/gateway.h"
#include "router/gateway/gateway_metrics.h"
#include "router/gateway/http_upstream.h"

namespace kvring::router {

enum class SessionRuleKind { kHeader, kPromptCacheKey, kUser };
struct SessionRule {
  SessionRuleKind kind;
  std::string header;
};

/// What all loops share. Outlives them.
struct GatewayShared {
  GatewayShared(const GatewayOptions& o, RouterGuard& g, MetricRegistry& r);

  const GatewayOptions options;
  RouterGuard& guard;
  MetricRegistry& registry;
  GatewayMetrics metrics;
  EndpointDirectory directory;
  const DecisionSampler sampler;
  HttpUpstreamCounters upstream_counters;
  std::vector<SessionRule> session_rules;
  UpstreamFactory grpc;
  AdminHandler admin;
  std::function<size_t()> client_connections;
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> next_request{1};
  uint64_t name_salt = 0;  // makes request names unguessable and different from those of other routers
};

/// "header:X", "body:prompt_cache_key" or "body:user"; the error names the rule.
absl::StatusOr<std::vector<SessionRule>> ParseSessionRules(const std::vector<std::string>& rules);

class Exchange;

class GatewayLoop final : public net::ServerUser, public QueueListener, private net::Ticked {
 public:
  GatewayLoop(GatewayShared& shared, net::EventLoop& loop);

  GatewayShared& shared() { return shared_; }
  net::EventLoop& loop() { return loop_; }

  /// Null for a replica that left or whose URL is unusable.
  std::shared_ptr<Endpoint> FindEndpoint(ReplicaId replica);
  /// The upstream of the endpoint's scheme; null if there is none.
  Upstream* UpstreamOf(const Endpoint& endpoint);
  /// As of the last tick.
  const AccessView& access() const { return *access_; }
  /// Alias and "default" replaced; otherwise the name itself.
  std::string_view ResolveModel(std::string_view asked);
  bool ServesModel(std::string_view model);
  bool ServesAnyModel() { return !Models().empty(); }
  RequestId NextId();
  /// The exchange is told when its queued request may go, until it leaves.
  void Await(RequestId request, Exchange& exchange) { waiting_[request] = &exchange; }
  void StopAwaiting(RequestId request) { waiting_.erase(request); }
  /// From any thread, under the guard.
  void OnReleased(RequestId request, const Decision& decision) override;
  /// On the loop thread, before it ends.
  void Shutdown();

 private:
  void OnRequest(net::ServerConnection& connection) override;
  bool keep_alive() const override { return !shared_.draining.load(std::memory_order_relaxed); }
  void OnTick(Instant now) override;
  const std::vector<std::string>& Models();

  GatewayShared& shared_;
  net::EventLoop& loop_;
  HttpUpstream http_;
  std::unique_ptr<Upstream> grpc_;
  std::map<ReplicaId, std::shared_ptr<Endpoint>> endpoints_;  // shared with the directory
  std::shared_ptr<const AccessView> access_;                  // shared with all readers of it
  std::map<RequestId, Exchange*> waiting_;                    // queued requests of this thread
  std::vector<std::string> models_;                           // of the pool, as of the last tick
};

}  // namespace kvring::router
