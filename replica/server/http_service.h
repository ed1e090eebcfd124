// HttpService: the OpenAI API of one replica: /v1/chat/completions, /v1/completions (SSE or whole),
// /v1/models, /tokenize, /health, /healthz, /readyz, /metrics, and, for loopback peers, POST
// /admin/v1/cache/reset. A replica is usable with it alone. Handle runs on HTTP threads, does not block and
// is thread-safe.
#pragma once

#include <functional>

#include "common/metrics.h"
#include "common/net/http_server.h"
#include "replica/server/engine_loop.h"
#include "replica/server/served_model.h"

namespace kvring::replica {

class HttpService {
 public:
  /// All must outlive the service and every request in it. `ready`: what /readyz answers.
  HttpService(EngineLoop& loop, const ServedModel& model, const MetricRegistry& metrics,
              std::function<bool()> ready);

  void Handle(net::HttpRequest request, net::ResponseWriter writer);

 private:
  void Generate(openai::Route route, net::HttpRequest request, net::ResponseWriter writer);
  void ResetCache(const net::HttpRequest& request, net::ResponseWriter writer);
  net::HttpResponse Get(std::string_view path) const;
  net::HttpResponse Tokenize(std::string body) const;

  EngineLoop& loop_;
  const ServedModel& model_;
  const MetricRegistry& metrics_;
  std::function<bool()> ready_;
  const int64_t started_;
};

}  // namespace kvring::replica
