#include "replica/server/grpc_service.h"

#include "common/block_hash.h"
#include "replica/server/exchange_call.h"
#include "replica/server/generate_call.h"

namespace kvring::replica {

GrpcService::GrpcService(EngineLoop& loop, const ServedModel& model, ReplicaIdentity identity)
    : loop_(loop), model_(model), identity_(std::move(identity)) {}

v1::ReplicaInfo GrpcService::Info() const {
  v1::ReplicaInfo info;
  info.set_epoch(identity_.epoch.value);
  info.add_models(model_.name());
  info.set_block_size(loop_.block_size());
  info.set_kv_capacity_tokens(identity_.kv_capacity_tokens);
  info.set_context_length(identity_.context_length);
  info.set_hash_probe(HashProbe());
  info.set_version(identity_.version);
  return info;
}

grpc::ServerWriteReactor<v1::GenerateResponse>* GrpcService::Generate(grpc::CallbackServerContext*,
                                                                      const v1::GenerateRequest* request) {
  return StartGenerateCall(loop_, model_, *request);
}

grpc::ServerBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse>* GrpcService::Exchange(
    grpc::CallbackServerContext*) {
  return StartExchangeCall(loop_, model_, Info());
}

grpc::ServerUnaryReactor* GrpcService::ListModels(grpc::CallbackServerContext* context,
                                                  const v1::ListModelsRequest*,
                                                  v1::ListModelsResponse* response) {
  v1::Model& model = *response->add_models();
  model.set_id(model_.name());
  model.set_context_length(identity_.context_length);
  model.set_chat(model_.chat() != nullptr);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace kvring::replica
