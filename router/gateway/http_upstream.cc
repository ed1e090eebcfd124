#include "router/gateway/http_upstream.h"

#include "router/gateway/http_upstream_connection.h"

namespace kvring::router {

HttpUpstream::HttpUpstream(net::EventLoop& loop, const UpstreamTimeouts& timeouts,
                           HttpUpstreamCounters& counters)
    : loop_(loop), timeouts_(timeouts), counters_(counters) {}

HttpUpstream::~HttpUpstream() { Shutdown(); }

Attempt* HttpUpstream::Start(const UpstreamRequest& request, AnswerSink& sink) {
  const auto idle = idle_.find(request.endpoint->replica);
  if (idle != idle_.end() && !idle->second.empty()) {
    HttpUpstreamConnection* connection = idle->second.back();
    idle->second.pop_back();
    counters_.reused.fetch_add(1, std::memory_order_relaxed);
    connection->Run(request, sink);
    return connection;
  }
  HttpUpstreamConnection::Pointer connection(new HttpUpstreamConnection(*this, request.endpoint));
  connection->index_in_all = all_.size();
  all_.push_back(connection.get());
  connection->Run(request, sink);  // keeps itself while open
  return connection.get();
}

void HttpUpstream::Keep(HttpUpstreamConnection& connection) {
  std::vector<HttpUpstreamConnection*>& idle = idle_[connection.replica()];
  if (idle.size() >= kMaxIdlePerReplica) {
    HttpUpstreamConnection* oldest = idle.front();
    oldest->Close();
  }
  idle.push_back(&connection);
}

void HttpUpstream::Forget(HttpUpstreamConnection& connection) {
  all_[connection.index_in_all] = all_.back();
  all_[connection.index_in_all]->index_in_all = connection.index_in_all;
  all_.pop_back();
  const auto idle = idle_.find(connection.replica());
  if (idle != idle_.end()) std::erase(idle->second, &connection);
}

void HttpUpstream::CloseIdle(ReplicaId replica) {
  const auto idle = idle_.find(replica);
  if (idle == idle_.end()) return;
  while (!idle->second.empty()) idle->second.back()->Close();
  idle_.erase(replica);
}

void HttpUpstream::Shutdown() {
  while (!all_.empty()) all_.back()->Close();
}

}  // namespace kvring::router
