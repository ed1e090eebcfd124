#include "router/gateway/grpc_front.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "kvring/v1/admin.grpc.pb.h"
#include "kvring/v1/fleet.grpc.pb.h"
#include "router/gateway/grpc_generate.h"

namespace kvring::router {
namespace {

std::shared_ptr<ApiKey> KeyOf(const AccessView& access, const grpc::CallbackServerContext& context) {
  const auto field = context.client_metadata().find("authorization");
  if (field == context.client_metadata().end()) return nullptr;
  return access.FindBearer({field->second.data(), field->second.size()});
}

grpc::Status CheckKey(const GrpcFrontShared& shared, const grpc::CallbackServerContext& context) {
  const auto access = shared.options.access->view();
  if (access->open() || KeyOf(*access, context) != nullptr) return grpc::Status::OK;
  return {grpc::StatusCode::UNAUTHENTICATED, "A valid API key is needed: authorization: Bearer KEY."};
}

grpc::Status CheckOperator(const GrpcFrontShared& shared, const grpc::CallbackServerContext& context) {
  if (!shared.options.access->view()->open()) return CheckKey(shared, context);
  const std::string peer = context.peer();  // the socket's: "ipv4:127.0.0.1:43210"
  const bool loopback = peer.starts_with("ipv4:127.") || peer.starts_with("ipv6:[::1]") ||
                        peer.starts_with("ipv6:%5B::1%5D") || peer.starts_with("unix:");
  if (loopback) return grpc::Status::OK;
  return {grpc::StatusCode::PERMISSION_DENIED, "Without API keys, Admin answers loopback peers only."};
}

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

class FailedStream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  explicit FailedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(GrpcFrontShared& shared) : shared_(shared) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override {
    if (const grpc::Status status = CheckKey(shared_, *context); !status.ok())
      return new FailedStream(status);
    return StartGenerate(shared_, *context, *request, KeyOf(*shared_.options.access->view(), *context));
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    if (const grpc::Status status = CheckKey(shared_, *context); !status.ok()) return Done(context, status);
    for (const std::string& model : shared_.guard.With([](Router& router) { return router.Models(); })) {
      v1::Model& entry = *response->add_models();
      entry.set_id(model);
      entry.set_chat(true);
    }
    return Done(context, grpc::Status::OK);
  }

 private:
  GrpcFrontShared& shared_;
};

class FleetService final : public v1::Fleet::CallbackService {
 public:
  explicit FleetService(GrpcFrontShared& shared) : shared_(shared) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    if (const grpc::Status status = CheckKey(shared_, *context); !status.ok()) return Done(context, status);
    if (!shared_.hooks.on_register)
      return Done(context, {grpc::StatusCode::UNIMPLEMENTED, "This router takes no registrations."});
    const auto lease = shared_.hooks.on_register(request->address(), Epoch{request->epoch()},
                                                 {request->models().begin(), request->models().end()});
    if (!lease.ok())
      return Done(context, {static_cast<grpc::StatusCode>(lease.status().code()),
                            std::string(lease.status().message())});
    response->set_lease_ms(*lease);
    shared_.fleet.Refresh();
    return Done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Deregister(grpc::CallbackServerContext* context,
                                       const v1::DeregisterRequest* request,
                                       v1::DeregisterResponse*) override {
    if (const grpc::Status status = CheckKey(shared_, *context); !status.ok()) return Done(context, status);
    if (shared_.hooks.on_deregister) shared_.hooks.on_deregister(request->address(), Epoch{request->epoch()});
    return Done(context, grpc::Status::OK);
  }

 private:
  GrpcFrontShared& shared_;
};

void ToMessage(const ReplicaView& view, v1::Replica& out) {
  out.set_id(view.name);
  out.set_url(view.url);
  out.set_state(std::string(ReplicaStateName(view.state)));
  out.set_epoch(view.epoch.value);
  out.mutable_models()->Add(view.models.begin(), view.models.end());
  out.set_in_flight(view.in_flight);
  out.set_pending_prefill_tokens(view.pending_prefill_tokens);
  out.set_kv_capacity_tokens(view.kv_capacity_tokens);
  out.set_kv_capacity_source(std::string(CapacitySourceName(view.kv_source)));
  out.set_indexed_tokens(view.indexed_tokens);
  out.set_requests(view.requests);
}

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(GrpcFrontShared& shared) : shared_(shared) {}

  grpc::ServerUnaryReactor* ListReplicas(grpc::CallbackServerContext* context, const v1::ListReplicasRequest*,
                                         v1::ListReplicasResponse* response) override {
    if (const grpc::Status status = CheckOperator(shared_, *context); !status.ok())
      return Done(context, status);
    const auto views = shared_.guard.With([](Router& router) { return router.Replicas(Now()); });
    for (const ReplicaView& view : views) ToMessage(view, *response->add_replicas());
    return Done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Why(grpc::CallbackServerContext* context, const v1::WhyRequest* request,
                                v1::WhyResponse* response) override {
    if (const grpc::Status status = CheckOperator(shared_, *context); !status.ok())
      return Done(context, status);
    const auto json = shared_.hooks.why_json ? shared_.hooks.why_json(request->request_id()) : std::nullopt;
    if (!json)
      return Done(context, {grpc::StatusCode::NOT_FOUND,
                            absl::StrCat("No request ", request->request_id().substr(0, 128),
                                         " is known (any more).")});
    response->set_json(*json);
    return Done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                  v1::Replica* response) override {
    if (const grpc::Status status = CheckOperator(shared_, *context); !status.ok())
      return Done(context, status);
    const auto drained = shared_.guard.With([&](Router& router) {
      const auto view = router.FindReplica(request->replica());
      if (view) router.SetDraining(view->id, !request->undrain(), Now());
      return router.FindReplica(request->replica());
    });
    if (!drained)
      return Done(context, {grpc::StatusCode::NOT_FOUND,
                            absl::StrCat(request->replica().substr(0, 128), " is no replica.")});
    ToMessage(*drained, *response);
    return Done(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context, const v1::StatsRequest*,
                                  v1::StatsResponse* response) override {
    if (const grpc::Status status = CheckOperator(shared_, *context); !status.ok())
      return Done(context, status);
    const Totals totals = shared_.guard.With([](Router& router) { return router.totals(); });
    response->set_requests(totals.requests);
    response->set_prompt_tokens(totals.prompt_tokens);
    response->set_cached_tokens(totals.cached_tokens);
    response->set_predicted_cached_tokens(totals.predicted_cached_tokens);
    response->set_completion_tokens(totals.completion_tokens);
    return Done(context, grpc::Status::OK);
  }

 private:
  GrpcFrontShared& shared_;
};

}  // namespace

class GrpcFront::Impl {
 public:
  Impl(const GrpcFrontOptions& options, RouterGuard& guard, GrpcFleet& fleet, MetricRegistry& metrics,
       GrpcFrontHooks hooks)
      : shared_(options, guard, fleet, metrics, std::move(hooks)),
        inference_(shared_),
        fleet_(shared_),
        admin_(shared_) {}
  ~Impl() { Stop(Duration(0)); }

  absl::Status Start() {
    const std::string& listen = shared_.options.listen;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, ServerCredentialsOf(shared_.options.tls), &port);
    builder.SetMaxReceiveMessageSize(static_cast<int>(shared_.options.max_message_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(shared_.options.max_message_bytes));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, shared_.options.share_port ? 1 : 0);
    builder.RegisterService(&inference_).RegisterService(&fleet_).RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0)
      return absl::UnavailableError(
          absl::StrCat("grpc_listen ", listen, ": cannot listen",
                       shared_.options.tls ? ", or grpc_tls is no usable pair" : ""));
    address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

  void Stop(Duration deadline) {
    if (server_ == nullptr) return;
    if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(millis, GPR_TIMESPAN)));
    server_->Wait();
    server_.reset();
  }

 private:
  GrpcFrontShared shared_;
  InferenceService inference_;
  FleetService fleet_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

absl::StatusOr<std::unique_ptr<GrpcFront>> GrpcFront::Start(const GrpcFrontOptions& options,
                                                            RouterGuard& guard, GrpcFleet& fleet,
                                                            MetricRegistry& metrics, GrpcFrontHooks hooks) {
  auto impl = std::make_unique<Impl>(options, guard, fleet, metrics, std::move(hooks));
  if (const absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<GrpcFront>(new GrpcFront(std::move(impl)));
}

GrpcFront::GrpcFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcFront::~GrpcFront() = default;
std::string GrpcFront::address() const { return impl_->address(); }
void GrpcFront::Stop(Duration deadline) { impl_->Stop(deadline); }

}  // namespace kvring::router
