// TLS of gRPC connections: the front's listener, and the channels to replicas. PEM texts, not files: who
// reads them names the file that is wrong. A connection keeps what it began with.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

namespace kvring::router {

struct GrpcServerTls {
  std::string certificate;  // the chain, the server's own first
  std::string key;
  std::string client_ca;  // not empty: clients must show a certificate that it signed
};

struct GrpcClientTls {
  std::string ca;           // empty: the system's
  std::string certificate;  // shown to the replica, with `key`; empty: none
  std::string key;
  std::string server_name;  // that the replica's certificate must have; empty: the URL's host
};

/// Without TLS where there is none to use.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const std::optional<GrpcServerTls>& tls);
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const std::optional<GrpcClientTls>& tls);

}  // namespace kvring::router
