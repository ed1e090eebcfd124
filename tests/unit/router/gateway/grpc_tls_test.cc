// TLS of the gRPC listener and of the channel to a replica, with certificates made here.
#include "router/gateway/grpc_tls.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "common/runtime/clock.h"
#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/grpc_fleet.h"
#include "router/gateway/grpc_front.h"
#include "tests/unit/eventually.h"

namespace kvring::router {
namespace {

struct Pair {
  std::string certificate, key;
};

template <class Write>
std::string Pem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  write(bio);
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio, &text);
  std::string pem(text, static_cast<size_t>(size));
  BIO_free(bio);
  return pem;
}

// Signed by itself, for one DNS name, good for an hour.
Pair MakePair(const std::string& name) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  for (const auto& [id, value] : {std::pair<int, std::string>{NID_subject_alt_name, "DNS:" + name},
                                  {NID_basic_constraints, "critical,CA:TRUE"}}) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  X509_sign(certificate, key, EVP_sha256());
  Pair pair{Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); }), Pem([&](BIO* bio) {
              PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
            })};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

grpc::Status ListModels(const std::string& address, const std::optional<GrpcClientTls>& tls) {
  grpc::ChannelArguments arguments;
  if (tls) arguments.SetSslTargetNameOverride(tls->server_name);
  const auto stub =
      v1::Inference::NewStub(grpc::CreateCustomChannel(address, ChannelCredentialsOf(tls), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  v1::ListModelsResponse response;
  return stub->ListModels(&context, {}, &response);
}

class FrontWithTls {
 public:
  explicit FrontWithTls(const GrpcServerTls& tls)
      : guard_(Router::Create({.policy = "round-robin", .seed = 1})), fleet_(guard_) {
    auto front = GrpcFront::Start({.tls = tls}, guard_, fleet_, metrics_, {});
    EXPECT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
  }
  ~FrontWithTls() { front_->Stop(Duration(0)); }
  std::string address() const { return front_->address(); }

 private:
  RouterGuard guard_;
  MetricRegistry metrics_;
  GrpcFleet fleet_;
  std::unique_ptr<GrpcFront> front_;
};

TEST(GrpcTls, Front_AnswersWhoTrustsIt_AndNobodyInTheClear) {
  const Pair server = MakePair("router.test"), other = MakePair("router.test");
  const FrontWithTls front({.certificate = server.certificate, .key = server.key});
  EXPECT_TRUE(
      ListModels(front.address(), GrpcClientTls{.ca = server.certificate, .server_name = "router.test"})
          .ok());
  EXPECT_FALSE(
      ListModels(front.address(), GrpcClientTls{.ca = other.certificate, .server_name = "router.test"}).ok());
  EXPECT_FALSE(
      ListModels(front.address(), GrpcClientTls{.ca = server.certificate, .server_name = "other.test"}).ok());
  EXPECT_FALSE(ListModels(front.address(), std::nullopt).ok());
}

TEST(GrpcTls, Front_WithClientCa_WantsACertificate) {
  const Pair server = MakePair("router.test"), client = MakePair("client.test");
  const FrontWithTls front(
      {.certificate = server.certificate, .key = server.key, .client_ca = client.certificate});
  GrpcClientTls tls{.ca = server.certificate, .server_name = "router.test"};
  EXPECT_FALSE(ListModels(front.address(), tls).ok());
  tls.certificate = client.certificate;
  tls.key = client.key;
  EXPECT_TRUE(ListModels(front.address(), tls).ok());
}

// A replica that says what it is to whoever opens a stream.
class TlsReplica final : public v1::Inference::Service {
 public:
  explicit TlsReplica(const Pair& pair) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0",
                             ServerCredentialsOf(GrpcServerTls{pair.certificate, pair.key, ""}), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~TlsReplica() override { server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC)); }
  std::string url() const { return "grpc://127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::Status Exchange(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ExchangeResponse, v1::ExchangeRequest>* stream) override {
    v1::ExchangeResponse hello;
    hello.mutable_info()->set_epoch(7);
    hello.mutable_info()->set_hash_probe(HashProbe());
    stream->Write(hello);
    v1::ExchangeRequest request;
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(GrpcTls, Replica_IsReachedByTheTlsOfItsUrl) {
  const Pair pair = MakePair("replica.test");
  TlsReplica trusted(pair), stranger(MakePair("replica.test"));
  RouterGuard guard(Router::Create({.policy = "round-robin", .seed = 1}));
  GrpcFleet fleet(guard);
  const GrpcClientTls tls{.ca = pair.certificate, .server_name = "replica.test"};
  fleet.SetTls({{trusted.url(), tls}, {stranger.url(), tls}});
  guard.With([&](Router& router) {
    router.AddReplica({.url = stranger.url(), .models = {"m"}}, Now());
    router.AddReplica({.url = trusted.url(), .models = {"m"}}, Now());
  });
  const auto epoch = [&](size_t i) {
    return guard.With([&](Router& router) { return router.Replicas(Now())[i].epoch; });
  };
  EXPECT_TRUE(Eventually([&] { return epoch(1) == Epoch{7}; }));
  EXPECT_EQ(epoch(0), Epoch{});
}

}  // namespace
}  // namespace kvring::router
