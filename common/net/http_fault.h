// The answer to a request that cannot be read: the OpenAI error object, as every other error of ours.
#pragma once

#include <string>

#include "common/net/http_parser.h"

namespace kvring::net {

/// {"error":{"message":…,"type":…,"param":null,"code":…}}. What cannot be read is the request's fault, 501
/// and 505 too; only 503 is ours. The message is one of ours: no escapes.
inline std::string FaultBody(const HttpFault& fault) {
  const auto code = [&]() -> std::string_view {
    switch (fault.status) {
      case 408:
        return "request_timeout";
      case 413:
        return "request_too_large";
      case 431:
        return "header_too_large";
      case 503:
        return "too_many_connections";
      default:
        return "malformed_request";
    }
  }();
  std::string body = R"({"error":{"message":")";
  body.append(fault.message)
      .append(R"(","type":")")
      .append(fault.status == 503 ? "server_error" : "invalid_request_error");
  body.append(R"(","param":null,"code":")").append(code).append(R"("}})");
  return body;
}

}  // namespace kvring::net
