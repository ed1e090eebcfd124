// AdminApi: the operator's HTTP API and the dashboard page, as plain functions from request to response. Keys
// of the JSON are snake_case and stable.
//   GET    /admin/v1/backends            {"backends":[…]}
//   POST   /admin/v1/backends            {"url":"http://…"|"grpc://…","kv_tokens":n,"weight":x,
//                                         "models":[…],"api_key":"…"}: 201, or 200 if known
//   DELETE /admin/v1/backends?url=…      its running requests finish
//   GET    /admin/v1/replicas            what the core believes of each
//   GET    /admin/v1/decisions?limit=n   newest first
//   GET    /admin/v1/why/ID              one request's story
//   GET    /admin/v1/policy              the policy, and those there are
//   GET    /admin/v1/health              {"status":"ok"|"degraded","warnings":[…]}: nothing degrades silently
//   POST   /admin/v1/drain               {"replica":"NAME or URL","undrain":false}
//   GET    /admin/v1/stats               totals; by outcome and reason
//   GET    /dashboard                    one page, no other files
// Without API keys only loopback peers are answered (403); the gateway checks keys. Thread-safe: the core is
// behind `access`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/net/http_message.h"
#include "router/router.h"

namespace kvring::router {

struct AdminOptions {
  /// Whether API keys are configured now; empty: never.
  std::function<bool()> keys_configured;
  /// Keeps the bearer token of a backend added here; empty: none can be given.
  std::function<void(const std::string& url, const std::string& key)> set_replica_key;
};

class AdminApi {
 public:
  AdminApi(RouterAccess access, AdminOptions options)
      : access_(std::move(access)), options_(std::move(options)) {}

  /// nullopt: not a route of the admin API.
  std::optional<net::HttpResponse> Handle(const net::HttpRequest& request) const;
  /// The record of /admin/v1/why/ID; nullopt: not known (any more).
  std::optional<std::string> WhyJson(std::string_view id) const;

 private:
  net::HttpResponse Route(const net::HttpRequest& request, std::string_view path) const;
  net::HttpResponse Backends(const net::HttpRequest& request) const;
  net::HttpResponse ListBackends() const;
  net::HttpResponse AddBackend(const net::HttpRequest& request) const;
  net::HttpResponse RemoveBackend(const net::HttpRequest& request) const;
  net::HttpResponse Replicas() const;
  net::HttpResponse Decisions(const net::HttpRequest& request) const;
  net::HttpResponse Why(std::string_view id) const;
  net::HttpResponse Policy() const;
  net::HttpResponse Health() const;
  net::HttpResponse Drain(const net::HttpRequest& request) const;
  net::HttpResponse Stats() const;

  const RouterAccess access_;
  const AdminOptions options_;
};

}  // namespace kvring::router
