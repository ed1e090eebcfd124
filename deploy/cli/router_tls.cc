#include "deploy/cli/router_tls.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "router/discovery/membership.h"

namespace kvring::cli {
namespace {

constexpr size_t kMaxPemBytes = 4 << 20;

// An empty name is an empty text.
absl::Status ReadPem(const std::string& field, const std::string& file, std::string& pem) {
  if (file.empty()) return absl::OkStatus();
  auto text = ReadFile(file, kMaxPemBytes);
  if (!text.ok())
    return absl::Status(text.status().code(), absl::StrCat(field, ": ", text.status().message()));
  if (text->find("-----BEGIN ") == std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", file, " is no PEM"));
  pem = *std::move(text);
  return absl::OkStatus();
}

absl::StatusOr<router::GrpcClientTls> ReadBackendTls(const v1::BackendTls& tls, const std::string& path) {
  if (tls.cert_file().empty() != tls.key_file().empty())
    return absl::InvalidArgumentError(path + ": cert_file and key_file go together");
  router::GrpcClientTls read{.server_name = tls.server_name()};
  KVRING_RETURN_IF_ERROR(ReadPem(path + ".ca_file", tls.ca_file(), read.ca));
  KVRING_RETURN_IF_ERROR(ReadPem(path + ".cert_file", tls.cert_file(), read.certificate));
  KVRING_RETURN_IF_ERROR(ReadPem(path + ".key_file", tls.key_file(), read.key));
  return read;
}

}  // namespace

absl::StatusOr<std::optional<router::GrpcServerTls>> ServerTlsOf(const v1::RouterConfig& config) {
  if (!config.has_grpc_tls()) return std::nullopt;
  const v1::GrpcTls& tls = config.grpc_tls();
  if (tls.cert_file().empty()) return absl::InvalidArgumentError("grpc_tls.cert_file is missing");
  if (tls.key_file().empty()) return absl::InvalidArgumentError("grpc_tls.key_file is missing");
  router::GrpcServerTls read;
  KVRING_RETURN_IF_ERROR(ReadPem("grpc_tls.cert_file", tls.cert_file(), read.certificate));
  KVRING_RETURN_IF_ERROR(ReadPem("grpc_tls.key_file", tls.key_file(), read.key));
  KVRING_RETURN_IF_ERROR(ReadPem("grpc_tls.client_ca_file", tls.client_ca_file(), read.client_ca));
  return read;
}

absl::StatusOr<std::map<std::string, router::GrpcClientTls>> ClientTlsOf(const v1::RouterConfig& config) {
  std::map<std::string, router::GrpcClientTls> by_url;
  for (int i = 0; i < config.backends_size(); ++i) {
    const v1::Backend& backend = config.backends(i);
    if (!backend.has_tls()) continue;
    const std::string path = absl::StrCat("backends[", i, "].tls");
    const auto url = router::NormalBackendUrl(backend.url());
    if (!url.ok() || !url->starts_with("grpc://"))
      return absl::InvalidArgumentError(path + " is for grpc:// backends");
    KVRING_ASSIGN_OR_RETURN(by_url[*url], ReadBackendTls(backend.tls(), path));
  }
  return by_url;
}

}  // namespace kvring::cli
