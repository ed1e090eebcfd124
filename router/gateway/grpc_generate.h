// Internal to the gRPC front: one Generate call from request to status: route, attempt, retry, relay, report.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/decision_sampler.h"
#include "router/gateway/endpoint_directory.h"
#include "router/gateway/grpc_front.h"
#include "router/gateway/grpc_http_bridge.h"

namespace kvring::router {

/// What all calls of a front share. Outlives them.
struct GrpcFrontShared {
  GrpcFrontShared(const GrpcFrontOptions& o, RouterGuard& g, GrpcFleet& f, MetricRegistry& metrics,
                  GrpcFrontHooks h);

  RequestId NextId();
  std::string NameOf(RequestId id) const;
  /// Alias, "default" and empty replaced by what is served.
  std::string ResolveModel(const std::string& asked);

  const GrpcFrontOptions options;
  RouterGuard& guard;
  GrpcFleet& fleet;
  const GrpcFrontHooks hooks;
  EndpointDirectory directory;
  const DecisionSampler sampler;
  HttpBridge bridge;
  std::array<Counter*, kOutcomeClasses> outcomes;
  Counter& retries;
  std::atomic<uint64_t> next_request{1};
  const uint64_t name_salt;
};

/// Starts the call, on account of `key` (null: none is needed); the reactor deletes itself when it is done.
/// `request` stays valid as long as the call.
grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerate(GrpcFrontShared& shared,
                                                              grpc::CallbackServerContext& context,
                                                              const v1::GenerateRequest& request,
                                                              std::shared_ptr<ApiKey> key);

}  // namespace kvring::router
