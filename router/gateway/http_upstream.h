// Internal to the gateway (shows Asio): replicas that speak HTTP/1.1. Keeps idle connections per replica and
// loop, the last used first; a pending read on each hears of its end at once. A request that meets a stale
// one (reused, closed or reset before any byte of an answer) is sent once more on a fresh connection, which
// is not an attempt of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/net/event_loop.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

class HttpUpstreamConnection;

struct HttpUpstreamCounters {
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> reused{0};
  std::atomic<uint64_t> stale_replays{0};
};

class HttpUpstream final : public Upstream {
 public:
  HttpUpstream(net::EventLoop& loop, const UpstreamTimeouts& timeouts, HttpUpstreamCounters& counters);
  ~HttpUpstream() override;

  Attempt* Start(const UpstreamRequest& request, AnswerSink& sink) override;
  /// Closes idle connections (to replicas that left, or all).
  void CloseIdle(ReplicaId replica);
  void Shutdown();

 private:
  friend class HttpUpstreamConnection;
  void Keep(HttpUpstreamConnection& connection);
  void Forget(HttpUpstreamConnection& connection);

  static constexpr size_t kMaxIdlePerReplica = 256;

  net::EventLoop& loop_;
  const UpstreamTimeouts timeouts_;
  HttpUpstreamCounters& counters_;
  std::map<ReplicaId, std::vector<HttpUpstreamConnection*>> idle_;
  std::vector<HttpUpstreamConnection*> all_;
};

}  // namespace kvring::router
