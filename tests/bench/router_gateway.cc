// The gateway alone (core, HTTP front, probes; no gRPC, no discovery) as a program, for measuring what a
// request costs:
//   router_gateway --listen 127.0.0.1:8080 --policy cache-aware --backend http://127.0.0.1:9001 … [--threads
//   1]
// Members can be added while it runs: POST /admin/v1/backends {"url": "http://…"}.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "common/metrics.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "common/runtime/signals.h"
#include "router/gateway/body_splice.h"
#include "router/gateway/gateway.h"

namespace {

using namespace kvring;

// {"url": "http://…"} and nothing else is needed here.
std::optional<net::HttpResponse> AddBackend(router::RouterGuard& guard, const net::HttpRequest& request) {
  if (request.method != "POST" || request.path() != "/admin/v1/backends") return std::nullopt;
  const auto url = router::FindTopLevelValue(request.body, "url");
  if (!url || url->size < 2) return net::JsonResponse(400, "{}");
  guard.With([&](router::Router& router) {
    router.AddReplica({.url = request.body.substr(url->offset + 1, url->size - 2)}, Now());
  });
  return net::JsonResponse(200, "{}");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The gateway alone, for measuring.");
  router::GatewayOptions options;
  options.http.listen = "127.0.0.1:8080";
  std::string policy = "cache-aware";
  std::vector<std::string> backends;
  app.add_option("--listen", options.http.listen);
  app.add_option("--policy", policy);
  app.add_option("--backend", backends);
  app.add_option("--threads", options.http.threads);
  CLI11_PARSE(app, argc, argv);

  BlockSignals();
  SetLogLevel(LogLevel::kWarn);
  std::unique_ptr<router::Router> core = router::Router::Create({.policy = policy, .seed = 1});
  if (!core) {
    std::cerr << "unknown policy " << policy << "\n";
    return 2;
  }
  router::RouterGuard guard(std::move(core));
  for (const std::string& url : backends) {
    guard.With([&](router::Router& router) { router.AddReplica({.url = url}, Now()); });
  }
  MetricRegistry metrics;
  auto gateway = router::Gateway::Start(options, guard, metrics, {}, [&](const net::HttpRequest& request) {
    return AddBackend(guard, request);
  });
  if (!gateway.ok()) {
    std::cerr << gateway.status() << "\n";
    return 1;
  }
  WaitForSignal();
  (*gateway)->Stop(std::chrono::seconds(5));
  return 0;
}
