#include "router/gateway/endpoint_directory.h"

#include <set>

#include "common/runtime/clock.h"
#include "common/runtime/log.h"

namespace kvring::router {

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
  const std::shared_ptr<const AccessView> access = access_->view();
  for (const ReplicaView& view : views) {
    members.insert(view.id);
    const auto configured = access->replica_keys.find(view.url);
    const std::string api_key = configured == access->replica_keys.end() ? "" : configured->second;
    if (const auto known = endpoints_.find(view.id); known != endpoints_.end()) {
      if (known->second->api_key == api_key) continue;
      known->second->removed.store(true, std::memory_order_relaxed);
      endpoints_.erase(known);
    }
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
    endpoint->api_key = api_key;
    endpoints_.emplace(view.id, std::move(endpoint));
  }
  for (auto it = endpoints_.begin(); it != endpoints_.end();) {
    const bool member = members.contains(it->first);
    if (!member) it->second->removed.store(true, std::memory_order_relaxed);
    it = member ? std::next(it) : endpoints_.erase(it);
  }
}

}  // namespace kvring::router
