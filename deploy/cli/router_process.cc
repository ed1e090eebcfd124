#include "deploy/cli/router_process.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "common/net/address.h"
#include "common/runtime/entropy.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "router/admin/admin_api.h"
#include "router/discovery/membership.h"
#include "router/gateway/gateway.h"
#include "router/gateway/grpc_fleet.h"
#include "router/gateway/grpc_front.h"
#include "router/gateway/router_guard.h"

namespace kvring::cli {
namespace {

using router::Gateway;
using router::GatewayOptions;
using router::RouterConfig;

Duration Millis(uint32_t value, uint32_t fallback) {
  return std::chrono::milliseconds(value > 0 ? value : fallback);
}

template <class T>
T Or(T value, T fallback) {
  return value > T{} ? value : fallback;
}

void FillDefaults(v1::RouterConfig& config) {
  if (config.listen().empty()) config.set_listen("127.0.0.1:8080");
  if (config.policy().empty()) config.set_policy("cache-aware");
  if (config.threads() == 0) config.set_threads(std::max(1u, std::thread::hardware_concurrency()));
  if (config.seed() == 0) config.set_seed(RandomSeed());
}

RouterConfig CoreConfig(const v1::RouterConfig& config) {
  RouterConfig core;
  core.policy = config.policy();
  core.seed = config.seed();
  core.health.unhealthy_after = static_cast<int>(Or(config.health().unhealthy_after(), 3u));
  core.health.healthy_after = static_cast<int>(Or(config.health().healthy_after(), 2u));
  core.health.eject_after = static_cast<int>(Or(config.health().eject_after(), 5u));
  core.health.eject_time = Millis(config.health().eject_ms(), 10'000);
  const v1::Limits& limits = config.limits();
  core.admission.max_in_flight_per_replica =
      static_cast<int32_t>(std::min(limits.max_in_flight_per_replica(), uint32_t{INT32_MAX}));
  core.admission.queue_length = limits.has_queue_length()                ? limits.queue_length()
                                : limits.max_in_flight_per_replica() > 0 ? 1024
                                                                         : 0;
  core.admission.queue_timeout = Millis(limits.queue_timeout_ms(), 30'000);
  return core;
}

GatewayOptions FrontOptions(const v1::RouterConfig& config, size_t ready_replicas) {
  const v1::Limits& limits = config.limits();
  GatewayOptions options;
  options.http.listen = config.listen();
  options.http.threads = static_cast<int>(config.threads());
  options.http.max_body_bytes = Or(limits.max_body_bytes(), uint64_t{32} << 20);
  options.http.header_timeout = Millis(limits.header_timeout_ms(), 10'000);
  options.http.max_connections = Or(limits.max_connections(), 20'000u);
  options.timeouts.connect = Millis(limits.connect_timeout_ms(), 2'000);
  options.timeouts.first_byte = Millis(limits.first_byte_timeout_ms(), 300'000);
  options.timeouts.idle = Millis(limits.idle_timeout_ms(), 300'000);
  options.probes.interval = Millis(config.health().interval_ms(), 1'000);
  options.probes.timeout = Millis(config.health().timeout_ms(), 1'000);
  options.max_attempts = static_cast<int>(Or(limits.max_attempts(), 3u));
  options.decision_headers = !config.has_decision_headers() || config.decision_headers();
  if (config.session_keys_size() > 0)
    options.session_keys.assign(config.session_keys().begin(), config.session_keys().end());
  options.ready_replicas = ready_replicas;
  return options;
}

absl::Status CheckAddress(const char* field, const std::string& text) {
  const auto address = net::ParseAddress(text);
  if (address.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", std::string(address.status().message())));
}

absl::Status CheckBackend(const v1::Backend& backend, int index) {
  const std::string path = absl::StrCat("backends[", index, "]");
  const auto url = net::ParseUrl(backend.url());
  if (!url.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ".url: ", std::string(url.status().message())));
  if (url->scheme != "http" && url->scheme != "grpc") {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".url: '", backend.url(), "' is neither http:// nor grpc://"));
  }
  if (backend.kv_tokens() < 0) return absl::InvalidArgumentError(path + ".kv_tokens must not be negative");
  if (backend.weight() < 0) return absl::InvalidArgumentError(path + ".weight must not be negative");
  return absl::OkStatus();
}

absl::Status CheckSessionKey(const std::string& key) {
  if (key == "body:prompt_cache_key" || key == "body:user" || (key.starts_with("header:") && key.size() > 7))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("session_keys: '", key, "' is not header:NAME, body:prompt_cache_key or body:user"));
}

router::ReplicaSpec SpecOf(const v1::Backend& backend) {
  router::ReplicaSpec spec;
  spec.url = backend.url();
  spec.models.assign(backend.models().begin(), backend.models().end());
  spec.weight = backend.weight() > 0 ? backend.weight() : 1;
  spec.kv_tokens = backend.kv_tokens();
  spec.kv_source =
      backend.kv_tokens() > 0 ? router::CapacitySource::kConfig : router::CapacitySource::kUnknown;
  return spec;
}

}  // namespace

// Members in the order in which each needs the ones before it; Stop goes the other way.
class RouterProcess::Impl {
 public:
  explicit Impl(const v1::RouterConfig& config)
      : guard_(router::Router::Create(CoreConfig(config))),
        access_([this](absl::FunctionRef<void(router::Router&)> work) { guard_.With(work); }),
        membership_(access_),
        admin_(access_, {}),
        fleet_(guard_) {}
  ~Impl() { Stop(Duration{0}); }

  absl::Status Start(const v1::RouterConfig& config, size_t ready_replicas);

  void Stop(Duration deadline) {
    if (grpc_ != nullptr) grpc_->Stop(deadline);
    if (http_ != nullptr) http_->Stop(deadline);
    grpc_.reset();
    http_.reset();
  }

  std::string http_address() const { return http_->address(); }
  std::string grpc_address() const { return grpc_ == nullptr ? "" : grpc_->address(); }

 private:
  router::GrpcFrontHooks Hooks() {
    router::GrpcFrontHooks hooks;
    hooks.on_register = [this](const std::string& address, Epoch epoch, std::vector<std::string> models) {
      return membership_.Register(address, epoch, std::move(models));
    };
    hooks.on_deregister = [this](const std::string& address, Epoch epoch) {
      membership_.Deregister(address, epoch);
    };
    hooks.why_json = [this](std::string_view id) { return admin_.WhyJson(id); };
    return hooks;
  }

  MetricRegistry metrics_;
  router::RouterGuard guard_;
  router::RouterAccess access_;
  router::Membership membership_;
  router::AdminApi admin_;
  router::GrpcFleet fleet_;
  std::unique_ptr<Gateway> http_;
  std::unique_ptr<router::GrpcFront> grpc_;
};

absl::Status RouterProcess::Impl::Start(const v1::RouterConfig& config, size_t ready_replicas) {
  std::vector<router::ReplicaSpec> backends;
  for (const v1::Backend& backend : config.backends()) backends.push_back(SpecOf(backend));
  KVRING_RETURN_IF_ERROR(membership_.AddStatic(backends));
  fleet_.Refresh();
  const GatewayOptions front = FrontOptions(config, ready_replicas);
  KVRING_ASSIGN_OR_RETURN(
      http_, Gateway::Start(front, guard_, metrics_, fleet_.Upstreams(),
                            [this](const net::HttpRequest& request) { return admin_.Handle(request); }));
  if (!config.grpc_listen().empty()) {
    router::GrpcFrontOptions options;
    options.listen = config.grpc_listen();
    options.max_attempts = front.max_attempts;
    options.decision_metadata = front.decision_headers;
    options.timeouts = front.timeouts;
    KVRING_ASSIGN_OR_RETURN(grpc_, router::GrpcFront::Start(options, guard_, fleet_, metrics_, Hooks()));
  }
  Log(LogLevel::kInfo, "router", "serving",
      {{"http", http_address()},
       {"grpc", grpc_address()},
       {"policy", config.policy()},
       {"threads", config.threads()},
       {"seed", config.seed()}});
  return absl::OkStatus();
}

absl::Status RouterProcess::Check(const v1::RouterConfig& given) {
  v1::RouterConfig config = given;
  FillDefaults(config);
  KVRING_RETURN_IF_ERROR(CheckAddress("listen", config.listen()));
  if (!config.grpc_listen().empty())
    KVRING_RETURN_IF_ERROR(CheckAddress("grpc_listen", config.grpc_listen()));
  for (int i = 0; i < config.backends_size(); ++i)
    KVRING_RETURN_IF_ERROR(CheckBackend(config.backends(i), i));
  for (const std::string& key : config.session_keys()) KVRING_RETURN_IF_ERROR(CheckSessionKey(key));
  const auto names = router::Router::PolicyNames();
  if (std::find(names.begin(), names.end(), config.policy()) != names.end() || config.policy() == "lpwl")
    return absl::OkStatus();
  std::string known;
  for (const std::string& name : names) absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  return absl::InvalidArgumentError(
      absl::StrCat("policy: '", config.policy(), "' is unknown (known: ", known, ")"));
}

absl::StatusOr<std::unique_ptr<RouterProcess>> RouterProcess::Start(v1::RouterConfig config,
                                                                    size_t ready_replicas) {
  KVRING_RETURN_IF_ERROR(Check(config));
  FillDefaults(config);
  auto impl = std::make_unique<Impl>(config);
  KVRING_RETURN_IF_ERROR(impl->Start(config, ready_replicas));
  return std::unique_ptr<RouterProcess>(new RouterProcess(std::move(impl)));
}

RouterProcess::RouterProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterProcess::~RouterProcess() = default;
std::string RouterProcess::http_address() const { return impl_->http_address(); }
std::string RouterProcess::grpc_address() const { return impl_->grpc_address(); }
void RouterProcess::Stop(Duration deadline) { impl_->Stop(deadline); }

}  // namespace kvring::cli
