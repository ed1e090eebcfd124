#include "deploy/cli/router_process.h"

#include <thread>

#include "common/metrics.h"
#include "common/net/http_server.h"
#include "common/openai/api_error.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "deploy/cli/router_settings.h"
#include "deploy/cli/router_tls.h"
#include "router/admin/admin_api.h"
#include "router/discovery/membership.h"
#include "router/events/kv_subscriber.h"
#include "router/gateway/gateway.h"
#include "router/gateway/grpc_fleet.h"
#include "router/gateway/grpc_front.h"
#include "router/gateway/router_guard.h"

namespace kvring::cli {

using router::Gateway;

// Members in the order in which each needs the ones before it; Stop goes the other way.
class RouterProcess::Impl {
 public:
  explicit Impl(const v1::RouterConfig& config)
      : config_(config),
        keys_(std::make_shared<router::Access>(AccessOf(config))),
        guard_(router::Router::Create(CoreConfig(config))),
        access_([this](absl::FunctionRef<void(router::Router&)> work) { guard_.With(work); }),
        membership_(access_),
        admin_(access_,
               {.keys_configured = [this] { return !keys_->view()->open(); },
                .set_replica_key = [this](const std::string& url,
                                          const std::string& key) { keys_->SetReplicaKey(url, key); }}),
        events_(access_),
        fleet_(guard_) {}
  ~Impl() { Stop(Duration{0}); }

  absl::Status Start(const v1::RouterConfig& config, size_t ready_replicas);

  absl::Status Reload(v1::RouterConfig config);

  // Both fronts stop accepting at once, and have the same time.
  void Stop(Duration deadline) {
    std::thread grpc([&] {
      if (grpc_ != nullptr) grpc_->Stop(deadline);
    });
    if (http_ != nullptr) http_->Stop(deadline);
    admin_http_.reset();
    grpc.join();
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

  net::HttpResponse AnswerAdmin(const net::HttpRequest& request) const;

  v1::RouterConfig config_;                     // as it runs
  const std::shared_ptr<router::Access> keys_;  // shared with the fronts
  MetricRegistry metrics_;
  router::RouterGuard guard_;
  router::RouterAccess access_;
  router::Membership membership_;
  router::AdminApi admin_;
  router::KvSubscriber events_;
  router::GrpcFleet fleet_;
  std::unique_ptr<Gateway> http_;
  std::unique_ptr<net::HttpServer> admin_http_;  // where admin has a listener of its own
  std::unique_ptr<router::GrpcFront> grpc_;
};

absl::Status RouterProcess::Impl::Start(const v1::RouterConfig& config, size_t ready_replicas) {
  KVRING_ASSIGN_OR_RETURN(auto tls, ClientTlsOf(config));
  fleet_.SetTls(std::move(tls));
  KVRING_RETURN_IF_ERROR(membership_.SetStatic(BackendsOf(config)));
  events_.SetSources(KvSourcesOf(config));
  fleet_.Refresh();
  router::GatewayOptions front = HttpOptions(config, ready_replicas);
  front.access = keys_;
  router::AdminHandler admin = [this](const net::HttpRequest& request) { return admin_.Handle(request); };
  if (!config.admin().listen().empty()) {
    admin = nullptr;
    const auto answer = [this](const net::HttpRequest& request, net::ResponseWriter writer) {
      writer.Reply(AnswerAdmin(request));
    };
    KVRING_ASSIGN_OR_RETURN(admin_http_, net::HttpServer::Start({.listen = config.admin().listen()}, answer));
  }
  KVRING_ASSIGN_OR_RETURN(http_,
                          Gateway::Start(front, guard_, metrics_, fleet_.Upstreams(), std::move(admin)));
  if (!config.grpc_listen().empty()) {
    router::GrpcFrontOptions options = GrpcOptions(config);
    options.access = keys_;
    KVRING_ASSIGN_OR_RETURN(options.tls, ServerTlsOf(config));
    KVRING_ASSIGN_OR_RETURN(grpc_, router::GrpcFront::Start(options, guard_, fleet_, metrics_, Hooks()));
  }
  Log(LogLevel::kInfo, "router", "serving",
      {{"http", http_address()},
       {"grpc", grpc_address()},
       {"admin", admin_http_ == nullptr ? http_address() : admin_http_->address()},
       {"policy", config.policy()},
       {"threads", config.threads()},
       {"seed", config.seed()}});
  return absl::OkStatus();
}

// The gateway checks keys for the admin routes on its port; here they are checked alike.
net::HttpResponse RouterProcess::Impl::AnswerAdmin(const net::HttpRequest& request) const {
  const auto keys = keys_->view();
  if (!keys->open() && keys->FindBearer(request.header("authorization").value_or("")) == nullptr) {
    const openai::ApiError error{401, "authentication_error", "invalid_api_key", "",
                                 "A valid API key is needed: Authorization: Bearer KEY."};
    return net::JsonResponse(401, error.ToJson());
  }
  if (auto response = admin_.Handle(request)) return *std::move(response);
  const openai::ApiError error{404, "invalid_request_error", "not_found", "", "There is no such route here."};
  return net::JsonResponse(404, error.ToJson());
}

// Seed and threads that were drawn at the start are not the file's to change by saying nothing.
absl::Status RouterProcess::Impl::Reload(v1::RouterConfig config) {
  KVRING_RETURN_IF_ERROR(ReadKeyFiles(config));
  KVRING_RETURN_IF_ERROR(CheckRouterConfig(config));
  if (config.seed() == 0) config.set_seed(config_.seed());
  FillDefaults(config);
  KVRING_ASSIGN_OR_RETURN(auto tls, ClientTlsOf(config));
  keys_->Replace(AccessOf(config));  // before the members that need them
  fleet_.SetTls(std::move(tls));
  KVRING_RETURN_IF_ERROR(membership_.SetStatic(BackendsOf(config)));
  events_.SetSources(KvSourcesOf(config));
  fleet_.Refresh();
  if (const std::string waits = FieldsForRestart(config_, config); !waits.empty())
    Log(LogLevel::kWarn, "router", "changed settings that need a restart", {{"fields", waits}});
  *config_.mutable_backends() = config.backends();
  *config_.mutable_api_keys() = config.api_keys();
  *config_.mutable_aliases() = config.aliases();
  Log(LogLevel::kInfo, "router", "configuration applied",
      {{"backends", config.backends_size()}, {"api_keys", config.api_keys_size()}});
  return absl::OkStatus();
}

absl::Status RouterProcess::Check(const v1::RouterConfig& config) {
  v1::RouterConfig read = config;
  KVRING_RETURN_IF_ERROR(ReadKeyFiles(read));
  return CheckRouterConfig(read);
}

absl::StatusOr<std::unique_ptr<RouterProcess>> RouterProcess::Start(v1::RouterConfig config,
                                                                    size_t ready_replicas) {
  KVRING_RETURN_IF_ERROR(ReadKeyFiles(config));
  KVRING_RETURN_IF_ERROR(CheckRouterConfig(config));
  FillDefaults(config);
  auto impl = std::make_unique<Impl>(config);
  KVRING_RETURN_IF_ERROR(impl->Start(config, ready_replicas));
  return std::unique_ptr<RouterProcess>(new RouterProcess(std::move(impl)));
}

RouterProcess::RouterProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterProcess::~RouterProcess() = default;
std::string RouterProcess::http_address() const { return impl_->http_address(); }
std::string RouterProcess::grpc_address() const { return impl_->grpc_address(); }
absl::Status RouterProcess::Reload(const v1::RouterConfig& config) { return impl_->Reload(config); }
void RouterProcess::Stop(Duration deadline) { impl_->Stop(deadline); }

}  // namespace kvring::cli
