#include "common/openai/api_error.h"

#include "absl/strings/str_cat.h"
#include "common/json_text.h"
#include "common/utf8.h"

namespace kvring::openai {
namespace {

void AppendStringOrNull(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    AppendJsonString(out, text);
  }
}

std::string_view TypeOfHttp(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

std::string ApiError::ToJson() const {
  std::string out = R"({"error":{"message":)";
  AppendJsonString(out, message);
  out += R"(,"type":)";
  AppendJsonString(out, type);
  out += R"(,"param":)";
  AppendStringOrNull(out, param);
  out += R"(,"code":)";
  AppendStringOrNull(out, code);
  out += "}}";
  return out;
}

ApiError InvalidRequest(std::string_view param, std::string message, std::string_view code) {
  return {400, "invalid_request_error", std::string(code), std::string(param), std::move(message)};
}

ApiError ContextLengthExceeded(std::string_view param, int64_t limit, int64_t prompt_tokens,
                               int64_t requested_tokens) {
  return InvalidRequest(
      param,
      absl::StrCat("This model's maximum context length is ", limit, " tokens. You requested ",
                   prompt_tokens + requested_tokens, " tokens (", prompt_tokens, " in the prompt, ",
                   requested_tokens, " for the completion)."),
      "context_length_exceeded");
}

ApiError ModelNotFound(std::string_view model) {
  std::string shown(model.substr(0, 128));
  return {404, "invalid_request_error", "model_not_found", "model",
          absl::StrCat("The model '", shown, "' does not exist here.")};
}

ApiError InternalError() { return {500, "server_error", "internal_error", "", "The server had an error."}; }

absl::StatusCode StatusCodeOfHttp(int http_status) {
  switch (http_status) {
    case 200:
      return absl::StatusCode::kOk;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 408:
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    case 413:
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 499:
      return absl::StatusCode::kCancelled;
    case 501:
      return absl::StatusCode::kUnimplemented;
    case 502:
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return http_status >= 400 && http_status < 500 ? absl::StatusCode::kInvalidArgument
                                                     : absl::StatusCode::kInternal;
  }
}

int HttpOfStatusCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string GrpcStatusText(const ApiError& error) {
  constexpr size_t kMaxEncodedBytes = 4096;
  std::string text;
  AppendValidUtf8(text, std::string_view(error.message).substr(0, kMaxEncodedBytes));
  size_t encoded = 0;
  size_t fit = 0;
  for (; fit < text.size(); ++fit) {
    const auto byte = static_cast<unsigned char>(text[fit]);
    encoded += byte >= 0x20 && byte <= 0x7E && byte != '%' ? 1 : 3;
    if (encoded > kMaxEncodedBytes) break;
  }
  text.resize(fit - IncompleteUtf8Tail(std::string_view(text).substr(0, fit)));
  return text;
}

ApiError FromStatus(const absl::Status& status) {
  const int http_status = HttpOfStatusCode(status.code());
  if (http_status >= 500 && http_status != 503 && http_status != 501) return InternalError();
  return {http_status, std::string(TypeOfHttp(http_status)), "", "", std::string(status.message())};
}

}  // namespace kvring::openai
