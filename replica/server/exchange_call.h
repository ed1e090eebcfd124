// ExchangeCall: the reactor of one Inference.Exchange stream: many requests of one router, all events of an
// engine step in one message. A router that reads too slowly is cut off (its requests are cancelled), never
// waited for.
#pragma once

#include "kvring/v1/inference.grpc.pb.h"
#include "replica/server/engine_loop.h"

namespace kvring::replica {

/// Starts the stream with `info`; the reactor deletes itself when the call is done.
grpc::ServerBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse>* StartExchangeCall(
    EngineLoop& loop, const ServedModel& model, v1::ReplicaInfo info);

}  // namespace kvring::replica
