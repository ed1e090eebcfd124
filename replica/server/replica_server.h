// ReplicaServer: one replica: model, executor, engine loop, HTTP and gRPC services, reporter to routers.
// Start brings all of it up in order, Stop takes it down in the reverse one: leave the routers, let running
// requests finish, close.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/instant.h"

namespace kvring::replica {

struct ReplicaOptions {
  std::string model_path;
  std::string model_name;                   // empty: the file's name
  std::string chat_template;                // a file that goes before the model's own template
  std::string listen = "127.0.0.1:0";       // HTTP; empty: none
  std::string grpc_listen = "127.0.0.1:0";  // gRPC; empty: none
  std::string device = "cpu";
  int64_t kv_tokens = 0;  // room of the KV pool in tokens; 0: from kv_bytes
  int64_t kv_bytes = 0;   // room of the KV pool in bytes; both 0: four times the model's context
  int32_t block_size = 16;
  int32_t threads = 2;
  bool exact = false;                // fp32 instead of the fast path
  std::string kv_type;               // f32, f16, bf16 or int8; empty: that of the path
  int64_t host_tier_bytes = 0;       // evicted blocks are kept in so much host memory; 0: not
  std::string host_tier_dir;         // in a file there instead, which outlives the process; empty: memory
  int32_t max_batch_tokens = 0;      // token budget of a step; 0: the scheduler's default
  std::vector<std::string> routers;  // gRPC addresses to register at
  std::string router_key;            // API key that the routers want; empty: none
  std::string advertise;             // address told to routers; empty: grpc_listen as bound
};

class ReplicaServer {
 public:
  /// Loads the model and serves. Errors name the file, field or address.
  static absl::StatusOr<std::unique_ptr<ReplicaServer>> Start(const ReplicaOptions& options);
  /// Stop(0) if still running.
  ~ReplicaServer();

  /// As bound; empty where not listening.
  std::string http_address() const;
  std::string grpc_address() const;
  Epoch epoch() const;
  const std::string& model_name() const;
  int64_t kv_capacity_tokens() const;

  /// Leaves the routers, waits up to `deadline` for running requests, then closes. Blocks.
  void Stop(Duration deadline);

 private:
  class Impl;
  explicit ReplicaServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::replica
