// FleetProcess: a router in this process and replicas as children of it, all on this machine: what `kvring
// up` runs. A replica that dies is started again, on the same ports with a new epoch, after a growing pause.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/instant.h"

namespace kvring::cli {

struct FleetOptions {
  std::string model;
  int replicas = 4;
  std::string listen = "127.0.0.1:8080";
  std::string grpc_listen = "127.0.0.1:9090";
  std::string policy = "cache-aware";
  int threads_per_replica = 0;  // 0: the machine's cores shared out, at least 1
  std::string kv_tokens;        // passed to each replica, empty: its default
  bool exact = false;
  std::string kv_type;  // passed to each replica, empty: its default
  uint64_t seed = 0;
  std::string log_level = "info";  // of the replicas
};

struct FleetReplica {
  std::string http_address;
  std::string grpc_address;
  int pid = 0;
};

class FleetProcess {
 public:
  static absl::StatusOr<std::unique_ptr<FleetProcess>> Start(const FleetOptions& options);
  ~FleetProcess();

  std::string http_address() const;
  std::string grpc_address() const;
  std::vector<FleetReplica> replicas() const;
  /// Waits until all replicas serve. False: `timeout` passed first.
  bool WaitReady(Duration timeout) const;

 private:
  class Impl;
  explicit FleetProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::cli
