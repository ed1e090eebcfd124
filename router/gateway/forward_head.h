// The heads that a proxy writes: the request to a replica and the answer to the client, from what the other
// side sent. Here lives header hygiene: hop-by-hop fields and those that Connection names are dropped (RFC
// 9110 §7.6.1), Host is the replica's, X-Forwarded-* are appended and never believed, keys and cookies stay
// here. Pure: appends to strings.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/net/http_parser.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

struct ForwardedRequest {
  const net::RequestHeadView& head;
  std::string_view peer;          // "127.0.0.1:43210"
  std::string_view request_name;  // x-request-id
  size_t body_bytes = 0;
  bool keep_authorization = true;  // the client's key is for the replica: the router has none of its own
  bool body_decoded = false;       // Content-Encoding was taken off
};

/// Request line and fields for `endpoint`, with the empty line.
void AppendForwardHead(std::string& out, const ForwardedRequest& request, const Endpoint& endpoint);

struct AnswerShape {
  bool chunk_to_client = false;  // Transfer-Encoding: chunked
  bool event_stream = false;
  bool keep_alive = true;
  bool http10 = false;
};

/// Status line and fields for the client, with the empty line. `own_lines`: "name: value\r\n"…, put last;
/// fields of the replica with the router's names (x-request-id, x-kvring-…) are dropped.
void AppendAnswerHead(std::string& out, const AnswerHead& head, const AnswerShape& shape,
                      std::string_view own_lines);

bool IsEventStream(std::span<const net::HeaderField> fields);
/// Whether a client's x-request-id may be used: 1 to 128 visible ASCII bytes.
bool IsUsableRequestName(std::string_view name);

}  // namespace kvring::router
