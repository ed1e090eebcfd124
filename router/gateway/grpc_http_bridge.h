// HttpBridge: carries requests of the gRPC front to replicas that speak HTTP: an OpenAI body goes out, and
// what comes back (an event stream, one JSON answer, or an error) becomes the events of Inference.Generate,
// told to the same ExchangeSink as by a replica behind gRPC. One loop and one connection pool of its own.
// Thread-safe; sinks are called on its loop. In its Usage, cached_tokens is -1 where the engine does not
// tell.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kvring/v1/inference.pb.h"
#include "router/gateway/exchange_client.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

struct BridgedRequest {
  RequestId id;
  std::shared_ptr<const Endpoint> endpoint;  // shared: members may leave while requests run
  std::string name;                          // x-request-id
  bool chat = false;
  std::string body;       // OpenAI JSON
  Duration first_byte{};  // no first byte within it: given up
};

class HttpBridge {
 public:
  explicit HttpBridge(const UpstreamTimeouts& timeouts);
  ~HttpBridge();

  /// The id is for Cancel, after which an event under way may still arrive.
  uint64_t Start(BridgedRequest request, std::shared_ptr<ExchangeSink> sink);
  void Cancel(uint64_t id);
  /// Runs on the loop, never inside the call; dropped when the bridge ends.
  void Post(std::function<void()> task);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The OpenAI body that asks for the same as the request (a stream with usage); of an `openai_body` its own
/// bytes.
std::string OpenAiBodyOf(const v1::GenerateRequest& request, std::string_view model);

}  // namespace kvring::router
