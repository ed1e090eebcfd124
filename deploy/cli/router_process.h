// RouterProcess: a whole router: core behind its guard, HTTP and gRPC fronts, discovery, admin. Start brings
// it up in order, Stop takes it down in the reverse one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "kvring/v1/config.pb.h"

namespace kvring::cli {

class RouterProcess {
 public:
  /// Empty or zero fields of `config` get the defaults that config.proto states. `ready_replicas`: /readyz
  /// needs so many up. Errors name the field.
  static absl::StatusOr<std::unique_ptr<RouterProcess>> Start(v1::RouterConfig config, size_t ready_replicas);
  /// What Start would check, without listening.
  static absl::Status Check(const v1::RouterConfig& config);
  ~RouterProcess();

  /// As bound.
  std::string http_address() const;
  std::string grpc_address() const;  // empty: none
  /// Follows backends, keys and aliases; running requests go on. What else differs is logged and waits for a
  /// restart. Errors name the field; then nothing changes. One call at a time.
  absl::Status Reload(const v1::RouterConfig& config);
  void Stop(Duration deadline);

 private:
  class Impl;
  explicit RouterProcess(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::cli
