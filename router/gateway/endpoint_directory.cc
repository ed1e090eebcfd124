#include "router/gateway/endpoint_directory.h"

#include <set>

#include "common/runtime/clock.h"
#include "common/runtime/log.h"

namespace kvring::router {

EndpointDirectory::EndpointDirectory(RouterGuard& guard, std::map<std::string, std::string> replica_keys)
    : guard_(guard), replica_keys_(std::move(replica_keys)) {}

std::shared_ptr<Endpoint> EndpointDirectory::Find(ReplicaId replica) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = endpoints_.find(replica); found != endpoints_.end()) return found->second;
  }
  Refresh();
  absl::MutexLock lock(&mutex_);
  const auto found = endpoints_.find(replica);
  return found == endpoints_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Endpoint>> EndpointDirectory::Refresh() {
  const std::vector<ReplicaView> views = guard_.With([](Router& router) { return router.Replicas(Now()); });
  absl::MutexLock lock(&mutex_);
  Follow(views);
  std::vector<std::shared_ptr<Endpoint>> all;
  for (const auto& [id, endpoint] : endpoints_) all.push_back(endpoint);
  return all;
}

void EndpointDirectory::Follow(const std::vector<ReplicaView>& views) {
  std::set<ReplicaId> members;
  for (const ReplicaView& view : views) {
    members.insert(view.id);
    if (endpoints_.contains(view.id)) continue;
    auto url = net::ParseUrl(view.url);
    if (!url.ok()) {
      Log(LogLevel::kError, "gateway", "replica url cannot be read",
          {{"replica", view.name},
           {"error", std::string_view(url.status().message().data(), url.status().message().size())}});
      continue;
    }
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->replica = view.id;
    endpoint->name = view.name;
    endpoint->url = *std::move(url);
    endpoint->authority = endpoint->url.address.ToString();
    if (const auto key = replica_keys_.find(view.url); key != replica_keys_.end())
      endpoint->api_key = key->second;
    endpoints_.emplace(view.id, std::move(endpoint));
  }
  for (auto it = endpoints_.begin(); it != endpoints_.end();) {
    const bool member = members.contains(it->first);
    if (!member) it->second->removed.store(true, std::memory_order_relaxed);
    it = member ? std::next(it) : endpoints_.erase(it);
  }
}

}  // namespace kvring::router
