// GrpcRequest: what the gRPC front reads of a GenerateRequest to route it: model, session, prompt key. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <vector>

#include "common/openai/api_error.h"
#include "kvring/v1/inference.pb.h"
#include "router/fleet/prompt_key.h"

namespace kvring::router {

struct GrpcRequest {
  std::string model;    // as asked
  std::string session;  // empty: none
  bool chat = false;
  int32_t max_output_tokens = 0;
  std::string canonical;        // canonical bytes of the prompt, or
  std::vector<TokenId> tokens;  // its exact ids
  std::string salt;

  bool has_prompt() const { return !canonical.empty() || !tokens.empty(); }
  /// Refers to this object's bytes.
  PromptKey KeyFor(std::string_view resolved_model) const;
};

/// Errors as over HTTP: bytes that are no JSON object, no input, no messages.
std::optional<openai::ApiError> ReadGrpcRequest(const v1::GenerateRequest& message, GrpcRequest& request);

/// The status of a call that failed so. The text is cut to 4 KiB as it travels, percent-encoded in a header
/// (GRP-09).
grpc::Status StatusOf(const openai::ApiError& error);

}  // namespace kvring::router
