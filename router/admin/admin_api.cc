#include "router/admin/admin_api.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/net/address.h"
#include "common/openai/api_error.h"
#include "common/runtime/clock.h"
#include "router/admin/admin_json.h"
#include "router/admin/dashboard.h"

namespace kvring::router {
namespace {

namespace json = boost::json;
using net::HttpRequest;
using net::HttpResponse;

constexpr size_t kUsualDecisions = 50;
constexpr size_t kMostDecisions = 10'000;
constexpr std::string_view kWhy = "/admin/v1/why/";

HttpResponse Answer(int status, const json::value& value) {
  return net::JsonResponse(status, json::serialize(value));
}

HttpResponse Fail(int status, std::string_view param, std::string message) {
  const openai::ApiError error{status, "invalid_request_error", "", std::string(param), std::move(message)};
  return net::JsonResponse(status, error.ToJson());
}

absl::StatusOr<json::object> ParseObject(const std::string& body) {
  boost::system::error_code error;
  json::value value = json::parse(body, error);
  if (error || !value.is_object()) return absl::InvalidArgumentError("The body must be one JSON object.");
  return std::move(value.get_object());
}

// One spelling of a place, so that it is one member: http and grpc only.
absl::StatusOr<std::string> BackendUrl(std::string_view text) {
  const auto url = net::ParseUrl(text);
  if (!url.ok()) return url.status();
  if (url->scheme != "http" && url->scheme != "grpc")
    return absl::InvalidArgumentError("a backend is http://host:port or grpc://host:port");
  return absl::StrCat(url->scheme, "://", url->address.ToString(), url->path);
}

absl::Status ReadModels(const json::value& value, std::vector<std::string>& models) {
  const json::array* list = value.if_array();
  if (list == nullptr) return absl::InvalidArgumentError("models: a list of names");
  for (const json::value& name : *list) {
    if (!name.is_string()) return absl::InvalidArgumentError("models: a list of names");
    models.emplace_back(name.get_string().data(), name.get_string().size());
  }
  return absl::OkStatus();
}

absl::Status ReadField(std::string_view key, const json::value& value, ReplicaSpec& spec) {
  if (key == "url") {
    if (!value.is_string()) return absl::InvalidArgumentError("url: a string");
    const auto url = BackendUrl({value.get_string().data(), value.get_string().size()});
    if (!url.ok()) return absl::InvalidArgumentError(absl::StrCat("url: ", url.status().message()));
    spec.url = *url;
    return absl::OkStatus();
  }
  if (key == "kv_tokens") {
    if (!value.is_int64() || value.get_int64() < 0)
      return absl::InvalidArgumentError("kv_tokens: a whole number, 0 or more");
    spec.kv_tokens = value.get_int64();
    spec.kv_source = spec.kv_tokens > 0 ? CapacitySource::kConfig : CapacitySource::kUnknown;
    return absl::OkStatus();
  }
  if (key == "weight") {
    const double weight = value.is_number() ? value.to_number<double>() : -1;
    if (!(weight >= 0 && weight <= 1000))
      return absl::InvalidArgumentError("weight: a number from 0 to 1000");
    spec.weight = weight;
    return absl::OkStatus();
  }
  if (key == "models") return ReadModels(value, spec.models);
  return absl::InvalidArgumentError(absl::StrCat(Absl(key), ": no such field"));
}

}  // namespace

std::optional<HttpResponse> AdminApi::Handle(const HttpRequest& request) const {
  const std::string_view path = request.path();
  if (path != "/dashboard" && !path.starts_with("/admin/")) return std::nullopt;
  // The socket's peer: no header makes a caller local (SEC-04).
  const bool keys = options_.keys_configured && options_.keys_configured();
  if (!keys && !request.peer_is_loopback) {
    return Fail(403, "", "Without API keys the admin API answers loopback peers only.");
  }
  return Route(request, path);
}

HttpResponse AdminApi::Route(const HttpRequest& request, std::string_view path) const {
  if (path == "/admin/v1/backends") return Backends(request);
  const bool drain = path == "/admin/v1/drain";
  if (request.method != (drain ? "POST" : "GET"))
    return Fail(405, "", drain ? "This route takes POST." : "This route takes GET.");
  if (drain) return Drain(request);
  if (path == "/dashboard")
    return {200, {{"Content-Type", "text/html; charset=utf-8"}}, std::string(DashboardPage())};
  if (path == "/admin/v1/replicas") return Replicas();
  if (path == "/admin/v1/decisions") return Decisions(request);
  if (path == "/admin/v1/policy") return Policy();
  if (path == "/admin/v1/health") return Health();
  if (path == "/admin/v1/stats") return Stats();
  if (path.starts_with(kWhy)) return Why(path.substr(kWhy.size()));
  return Fail(404, "", "There is no such admin route.");
}

// ---- backends ----

HttpResponse AdminApi::Backends(const HttpRequest& request) const {
  if (request.method == "GET") return ListBackends();
  if (request.method == "POST") return AddBackend(request);
  if (request.method == "DELETE") return RemoveBackend(request);
  return Fail(405, "", "This route takes GET, POST and DELETE.");
}

HttpResponse AdminApi::ListBackends() const {
  json::array backends;
  access_([&](Router& router) {
    for (const ReplicaView& view : router.Replicas(Now())) backends.push_back(BackendJson(view));
  });
  return Answer(200, json::object{{"backends", std::move(backends)}});
}

HttpResponse AdminApi::AddBackend(const HttpRequest& request) const {
  const auto fields = ParseObject(request.body);
  if (!fields.ok()) return Fail(400, "", std::string(fields.status().message()));
  ReplicaSpec spec;
  std::string api_key;
  for (const auto& field : *fields) {
    const std::string_view key(field.key().data(), field.key().size());
    if (key == "api_key" && options_.set_replica_key && field.value().is_string()) {
      api_key.assign(field.value().get_string().data(), field.value().get_string().size());
      continue;
    }
    const absl::Status status = ReadField(key, field.value(), spec);
    if (!status.ok()) return Fail(400, key, std::string(status.message()));
  }
  if (spec.url.empty()) return Fail(400, "url", "url: missing");
  if (!api_key.empty()) options_.set_replica_key(spec.url, api_key);
  bool known = false;
  json::object backend;
  access_([&](Router& router) {
    known = router.FindReplica(spec.url).has_value();
    router.AddReplica(spec, Now());
    if (const auto view = router.FindReplica(spec.url)) backend = BackendJson(*view);
  });
  return Answer(known ? 200 : 201, backend);
}

HttpResponse AdminApi::RemoveBackend(const HttpRequest& request) const {
  const auto text = net::QueryParameter(request.target, "url");
  if (!text) return Fail(400, "url", "url: missing; DELETE /admin/v1/backends?url=…");
  const auto url = BackendUrl(*text);
  if (!url.ok()) return Fail(400, "url", absl::StrCat("url: ", url.status().message()));
  bool known = false;
  access_([&](Router& router) {
    const auto view = router.FindReplica(*url);
    known = view.has_value();
    if (known) router.RemoveReplica(view->id, Now());
  });
  if (!known) return Fail(404, "url", absl::StrCat(*url, " is no backend."));
  return Answer(200, json::object{{"removed", *url}});
}

// ---- reading ----

HttpResponse AdminApi::Replicas() const {
  json::array replicas;
  access_([&](Router& router) {
    for (const ReplicaView& view : router.Replicas(Now())) replicas.push_back(ToJson(view));
  });
  return Answer(200, json::object{{"replicas", std::move(replicas)}});
}

HttpResponse AdminApi::Decisions(const HttpRequest& request) const {
  uint64_t limit = kUsualDecisions;
  const auto text = net::QueryParameter(request.target, "limit");
  if (text && (!absl::SimpleAtoi(*text, &limit) || limit == 0 || limit > kMostDecisions)) {
    return Fail(400, "limit", absl::StrCat("limit: a whole number from 1 to ", kMostDecisions));
  }
  const Instant now = Now();
  std::vector<DecisionRecord> records;
  std::vector<ReplicaView> views;
  access_([&](Router& router) {
    records = router.RecentDecisions(limit);
    views = router.Replicas(now);
  });
  json::array decisions;
  for (const DecisionRecord& record : records) decisions.push_back(ToJson(record, views, now));
  return Answer(200, json::object{{"decisions", std::move(decisions)}});
}

std::optional<std::string> AdminApi::WhyJson(std::string_view id) const {
  const Instant now = Now();
  std::optional<DecisionRecord> record;
  std::vector<ReplicaView> views;
  access_([&](Router& router) {
    record = router.Why(id);
    if (record) views = router.Replicas(now);
  });
  if (!record) return std::nullopt;
  return json::serialize(ToJson(*record, views, now));
}

HttpResponse AdminApi::Why(std::string_view id) const {
  auto record = WhyJson(id);
  if (!record)
    return Fail(404, "", absl::StrCat("No request ", Absl(id.substr(0, 128)), " is known (any more)."));
  return net::JsonResponse(200, *std::move(record));
}

HttpResponse AdminApi::Policy() const {
  json::object out;
  access_([&](Router& router) {
    const std::string_view policy = router.policy();
    out["policy"] = json::string_view(policy.data(), policy.size());
  });
  const std::vector<std::string> names = Router::PolicyNames();
  out["policies"] = json::array(names.begin(), names.end());
  return Answer(200, out);
}

HttpResponse AdminApi::Health() const {
  std::vector<std::string> warnings;
  size_t members = 0;
  size_t up = 0;
  access_([&](Router& router) {
    warnings = router.Warnings();
    for (const ReplicaView& view : router.Replicas(Now())) {
      ++members;
      up += view.state == ReplicaState::kUp ? 1 : 0;
      if (view.state == ReplicaState::kUp && view.kv_source == CapacitySource::kUnknown) {
        warnings.push_back(absl::StrCat(
            view.name, ": KV cache capacity unknown; cache predictions assume nothing is evicted"));
      }
      if (view.state == ReplicaState::kUp || view.state == ReplicaState::kDraining) continue;
      warnings.push_back(absl::StrCat(view.name, ": ", Absl(ReplicaStateName(view.state))));
    }
  });
  if (members == 0) warnings.emplace_back("no backends: every request is refused");
  json::object out;
  out["status"] = warnings.empty() ? "ok" : "degraded";
  out["replicas"] = members;
  out["replicas_up"] = up;
  out["warnings"] = json::array(warnings.begin(), warnings.end());
  return Answer(200, out);
}

HttpResponse AdminApi::Drain(const HttpRequest& request) const {
  const auto fields = ParseObject(request.body);
  if (!fields.ok()) return Fail(400, "", std::string(fields.status().message()));
  const json::value* replica = fields->if_contains("replica");
  if (replica == nullptr || !replica->is_string())
    return Fail(400, "replica", "replica: a replica's id or URL");
  const json::value* undrain = fields->if_contains("undrain");
  if (undrain != nullptr && !undrain->is_bool()) return Fail(400, "undrain", "undrain: true or false");
  const bool draining = undrain == nullptr || !undrain->get_bool();
  const std::string name(replica->get_string().data(), replica->get_string().size());
  std::optional<json::object> answer;
  access_([&](Router& router) {
    const auto view = router.FindReplica(name);
    if (!view) return;
    router.SetDraining(view->id, draining, Now());
    if (const auto changed = router.FindReplica(name)) answer = BackendJson(*changed);
  });
  return answer ? Answer(200, *answer)
                : Fail(404, "replica", absl::StrCat(name.substr(0, 128), " is no replica."));
}

HttpResponse AdminApi::Stats() const {
  Totals totals;
  access_([&](Router& router) { totals = router.totals(); });
  return Answer(200, ToJson(totals));
}

}  // namespace kvring::router
