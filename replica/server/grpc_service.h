// GrpcService: kvring.v1.Inference of one replica. Generate is one request on one stream; Exchange carries
// all requests of a router on one long stream, with the replica's identity, load and cache events.
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "kvring/v1/inference.grpc.pb.h"
#include "replica/server/engine_loop.h"
#include "replica/server/served_model.h"

namespace kvring::replica {

/// What Exchange says of this replica in its first message.
struct ReplicaIdentity {
  Epoch epoch;
  int64_t kv_capacity_tokens = 0;
  int32_t context_length = 0;
  std::string version;
};

class GrpcService : public v1::Inference::CallbackService {
 public:
  /// `loop` and `model` must outlive every call.
  GrpcService(EngineLoop& loop, const ServedModel& model, ReplicaIdentity identity);

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;
  grpc::ServerBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse>* Exchange(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

  v1::ReplicaInfo Info() const;

 private:
  EngineLoop& loop_;
  const ServedModel& model_;
  const ReplicaIdentity identity_;
};

}  // namespace kvring::replica
