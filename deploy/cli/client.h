// Client: a router or replica as the client commands see it, over gRPC. Blocking; one call at a time.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "kvring/v1/admin.grpc.pb.h"
#include "kvring/v1/inference.grpc.pb.h"

namespace kvring::cli {

struct Answer {
  std::string text;  // of choice 0
  v1::Usage usage;
  Duration ttft{};
  std::string replica;  // x-kvring-replica, empty when the router does not tell
  std::string reason;
  std::string request_id;
};

struct RouterAddress {
  std::string address = "127.0.0.1:9090";  // host:port of a gRPC listener
  std::string api_key;                     // empty: none is wanted
};
/// --router and --api-key (or $KVRING_API_KEY).
void AddRouterOptions(CLI::App& command, RouterAddress& router);

class Client {
 public:
  explicit Client(const RouterAddress& router);

  /// Runs one request; `on_text` gets the text of choice 0 as it comes. Unavailable, DeadlineExceeded, and
  /// what the server says.
  absl::StatusOr<Answer> Generate(const v1::GenerateRequest& request,
                                  const std::function<void(std::string_view)>& on_text);
  absl::StatusOr<v1::WhyResponse> Why(const std::string& request_id);
  absl::StatusOr<v1::StatsResponse> Stats();
  absl::StatusOr<v1::ListReplicasResponse> Replicas();
  absl::StatusOr<v1::Replica> Drain(const v1::DrainRequest& request);

 private:
  const RouterAddress router_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace kvring::cli
