#include "router/gateway/gateway_loop.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/runtime/entropy.h"
#include "router/gateway/exchange.h"

namespace kvring::router {

GatewayShared::GatewayShared(const GatewayOptions& o, RouterGuard& g, MetricRegistry& r)
    : options(o),
      guard(g),
      registry(r),
      metrics(r),
      directory(g, o.access),
      sampler(o.decision_log_share),
      name_salt(RandomSeed()) {}

absl::StatusOr<std::vector<SessionRule>> ParseSessionRules(const std::vector<std::string>& rules) {
  std::vector<SessionRule> parsed;
  for (const std::string& rule : rules) {
    if (rule == "body:prompt_cache_key") {
      parsed.push_back({SessionRuleKind::kPromptCacheKey, ""});
    } else if (rule == "body:user") {
      parsed.push_back({SessionRuleKind::kUser, ""});
    } else if (rule.starts_with("header:") && net::IsToken(std::string_view(rule).substr(7))) {
      parsed.push_back({SessionRuleKind::kHeader, rule.substr(7)});
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "session_keys: \"", rule, "\" is none of header:NAME, body:prompt_cache_key, body:user"));
    }
  }
  return parsed;
}

GatewayLoop::GatewayLoop(GatewayShared& shared, net::EventLoop& loop)
    : shared_(shared), loop_(loop), http_(loop, shared.options.timeouts, shared.upstream_counters) {
  access_ = shared.options.access->view();
  const auto post = [&loop](std::function<void()> task) { loop.Post(std::move(task)); };
  if (shared.grpc) grpc_ = shared.grpc(shared.options.timeouts, post);
  loop_.Watch(*this);
}

void GatewayLoop::OnRequest(net::ServerConnection& connection) {
  if (!connection.owner) connection.owner = std::make_unique<Exchange>(*this, connection);
  static_cast<Exchange&>(*connection.owner).Begin();
}

std::shared_ptr<Endpoint> GatewayLoop::FindEndpoint(ReplicaId replica) {
  if (const auto found = endpoints_.find(replica); found != endpoints_.end()) return found->second;
  std::shared_ptr<Endpoint> endpoint = shared_.directory.Find(replica);
  if (endpoint) endpoints_.emplace(replica, endpoint);
  return endpoint;
}

Upstream* GatewayLoop::UpstreamOf(const Endpoint& endpoint) {
  if (endpoint.url.scheme == "http") return &http_;
  return endpoint.url.scheme == "grpc" ? grpc_.get() : nullptr;
}

const std::vector<std::string>& GatewayLoop::Models() {
  if (models_.empty()) models_ = shared_.guard.With([](Router& router) { return router.Models(); });
  return models_;
}

std::string_view GatewayLoop::ResolveModel(std::string_view asked) {
  if (!access_->aliases.empty()) {
    if (const auto alias = access_->aliases.find(std::string(asked)); alias != access_->aliases.end())
      return alias->second;
  }
  if ((asked.empty() || asked == "default") && !Models().empty()) return models_.front();
  return asked;
}

bool GatewayLoop::ServesModel(std::string_view model) {
  const auto& models = Models();
  return std::find(models.begin(), models.end(), model) != models.end();
}

RequestId GatewayLoop::NextId() { return {shared_.next_request.fetch_add(1, std::memory_order_relaxed)}; }

// Whose client has gone meanwhile is completed already: its place was given back by that.
void GatewayLoop::OnReleased(RequestId request, const Decision& decision) {
  loop_.Post([this, request, decision] {
    const auto found = waiting_.find(request);
    if (found == waiting_.end()) return;
    Exchange& exchange = *found->second;
    waiting_.erase(found);
    exchange.OnReleased(decision);
  });
}

void GatewayLoop::OnTick(Instant) {
  access_ = shared_.options.access->view();
  models_ = shared_.guard.With([](Router& router) { return router.Models(); });
  for (auto it = endpoints_.begin(); it != endpoints_.end();) {
    const bool removed = it->second->removed.load(std::memory_order_relaxed);
    if (removed) http_.CloseIdle(it->first);
    it = removed ? endpoints_.erase(it) : std::next(it);
  }
}

void GatewayLoop::Shutdown() {
  Ticked::unlink();
  http_.Shutdown();
  grpc_.reset();
}

}  // namespace kvring::router
