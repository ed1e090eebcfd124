// ApiError: the OpenAI error object and its HTTP status, and the one mapping between it, absl::Status and
// gRPC codes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvring::openai {

struct ApiError {
  int http_status = 500;
  std::string type =
      "internal_error";  // invalid_request_error, authentication_error, rate_limit_error, server_error …
  std::string code;      // machine-readable, may be empty (null on the wire)
  std::string param;     // the request's field, may be empty (null on the wire)
  std::string message;

  /// {"error":{"message":…,"type":…,"param":…,"code":…}}
  std::string ToJson() const;
};

/// 400 invalid_request_error about one field.
ApiError InvalidRequest(std::string_view param, std::string message, std::string_view code = "");
/// 400 context_length_exceeded: prompt and requested output do not fit the limit.
ApiError ContextLengthExceeded(std::string_view param, int64_t limit, int64_t prompt_tokens,
                               int64_t requested_tokens);
/// 404 model_not_found.
ApiError ModelNotFound(std::string_view model);
/// A generic 500 whose message tells nothing of the inside.
ApiError InternalError();

/// absl code of an HTTP status and back: 400 InvalidArgument, 401 Unauthenticated, 403 PermissionDenied, 404
/// NotFound, 408/504 DeadlineExceeded, 413/429 ResourceExhausted, 499 Cancelled, 501 Unimplemented, 502/503
/// Unavailable, else Internal. gRPC uses the same numbers as absl.
absl::StatusCode StatusCodeOfHttp(int http_status);
int HttpOfStatusCode(absl::StatusCode code);

/// The message as a gRPC status may carry it: valid UTF-8, at most 4 KiB once percent-encoded for the header
/// (GRP-09).
std::string GrpcStatusText(const ApiError& error);

/// The error of a Status that came from below: its message is shown only where it is the client's (4xx).
ApiError FromStatus(const absl::Status& status);

}  // namespace kvring::openai
