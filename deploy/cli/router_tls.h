// RouterTls: the TLS settings of the configuration with the contents of their files. Errors name field and
// file.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kvring/v1/config.pb.h"
#include "router/gateway/grpc_tls.h"

namespace kvring::cli {

/// Of the gRPC listener; nullopt: in the clear.
absl::StatusOr<std::optional<router::GrpcServerTls>> ServerTlsOf(const v1::RouterConfig& config);
/// Of the backends that have it, by normal URL.
absl::StatusOr<std::map<std::string, router::GrpcClientTls>> ClientTlsOf(const v1::RouterConfig& config);

}  // namespace kvring::cli
