// The gRPC upstream of one gateway loop: OpenAI bodies go to the replica as they came, its events come back
// as the bytes that the replica's own HTTP service would have sent (common/openai/response_writer.h).
//   before the first delta   an error event becomes an answer with its status (the gateway retries 429, 503
//   and other 5xx) after it                 an in-band error event, and no [DONE] the connection breaks
//   OnFailed
// Created, used and destroyed on the loop's thread; events wait for it in an inbox that posts one task
// however many come. A paused attempt keeps its events; they are bounded by the context length of the model.
#pragma once

#include <memory>

#include "router/gateway/upstream.h"

namespace kvring::router {

class GrpcFleet;

/// `fleet` outlives it.
std::unique_ptr<Upstream> MakeGrpcUpstream(GrpcFleet& fleet, const UpstreamTimeouts& timeouts,
                                           LoopPoster poster);

}  // namespace kvring::router
