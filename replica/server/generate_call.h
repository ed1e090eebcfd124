// GenerateCall: the reactor of one Inference.Generate stream, and the sink that feeds it. gRPC threads and
// the engine thread meet in one small locked state, which outlives both.
#pragma once

#include "kvring/v1/inference.grpc.pb.h"
#include "replica/server/engine_loop.h"

namespace kvring::replica {

/// Starts the request; the reactor deletes itself when the call is done.
grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerateCall(EngineLoop& loop, const ServedModel& model,
                                                                  const v1::GenerateRequest& request);

}  // namespace kvring::replica
