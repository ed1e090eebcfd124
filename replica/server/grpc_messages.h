// Between the wire's messages (proto/kvring/v1/inference.proto) and the replica's own values.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>

#include "common/openai/api_error.h"
#include "common/openai/generation_request.h"
#include "kvring/v1/inference.pb.h"
#include "replica/server/engine_loop.h"
#include "replica/server/generation.h"

namespace kvring::replica {

/// The validated request behind any of the four inputs; errors as for the same request over HTTP.
std::optional<openai::ApiError> ReadGenerateRequest(const v1::GenerateRequest& message,
                                                    openai::GenerationRequest& request);

v1::GenerateResponse ToMessage(const AdmittedInfo& info);
v1::GenerateResponse ToMessage(const GenerationDelta& delta);
v1::GenerateResponse ToMessage(const DoneInfo& info);
v1::GenerateResponse ToMessage(const openai::ApiError& error);
v1::LoadReport ToMessage(const LoopLoad& load);

/// The status of a call that failed so. The text is cut to 4 KiB (GRP-09): it travels in a header.
grpc::Status ToStatus(const openai::ApiError& error);

}  // namespace kvring::replica
