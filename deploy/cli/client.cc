#include "deploy/cli/client.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"

namespace kvring::cli {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr auto kAdminTimeout = std::chrono::seconds(5);

absl::Status FromGrpc(const grpc::Status& status, const std::string& address) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(address, ": ", status.error_message()));
}

std::string Metadata(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::string() : std::string(it->second.data(), it->second.size());
}

void AddKey(grpc::ClientContext& context, const RouterAddress& router) {
  if (!router.api_key.empty()) context.AddMetadata("authorization", "Bearer " + router.api_key);
}

template <class Response, class Call>
absl::StatusOr<Response> Unary(const RouterAddress& router, Call call) {
  grpc::ClientContext context;
  AddKey(context, router);
  context.set_deadline(std::chrono::system_clock::now() + kAdminTimeout);
  Response response;
  const grpc::Status status = call(context, response);
  if (!status.ok()) return FromGrpc(status, router.address);
  return response;
}

}  // namespace

void AddRouterOptions(CLI::App& command, RouterAddress& router) {
  command.add_option("--router", router.address, "gRPC address of the router")->capture_default_str();
  command.add_option("--api-key", router.api_key, "where the router wants one")->envname("KVRING_API_KEY");
}

Client::Client(const RouterAddress& router) : router_(router) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  const auto channel =
      grpc::CreateCustomChannel(router.address, grpc::InsecureChannelCredentials(), arguments);
  inference_ = v1::Inference::NewStub(channel);
  admin_ = v1::Admin::NewStub(channel);
}

absl::StatusOr<Answer> Client::Generate(const v1::GenerateRequest& request,
                                        const std::function<void(std::string_view)>& on_text) {
  Answer answer;
  grpc::ClientContext context;
  AddKey(context, router_);
  const Instant begin = Now();
  const auto stream = inference_->Generate(&context, request);
  for (v1::GenerateResponse response; stream->Read(&response);) {
    if (response.has_delta()) {
      if (answer.ttft.count() == 0) answer.ttft = Now() - begin;
      if (response.delta().index() != 0) continue;
      answer.text += response.delta().text();
      on_text(response.delta().text());
    } else if (response.has_usage()) {
      answer.usage = response.usage();
    }
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return FromGrpc(status, router_.address);
  answer.replica = Metadata(context, "x-kvring-replica");
  answer.reason = Metadata(context, "x-kvring-reason");
  answer.request_id = Metadata(context, "x-request-id");
  return answer;
}

absl::StatusOr<v1::WhyResponse> Client::Why(const std::string& request_id) {
  v1::WhyRequest request;
  request.set_request_id(request_id);
  return Unary<v1::WhyResponse>(
      router_, [&](auto& context, auto& response) { return admin_->Why(&context, request, &response); });
}

absl::StatusOr<v1::StatsResponse> Client::Stats() {
  return Unary<v1::StatsResponse>(
      router_, [&](auto& context, auto& response) { return admin_->Stats(&context, {}, &response); });
}

absl::StatusOr<v1::ListReplicasResponse> Client::Replicas() {
  return Unary<v1::ListReplicasResponse>(
      router_, [&](auto& context, auto& response) { return admin_->ListReplicas(&context, {}, &response); });
}

absl::StatusOr<v1::Replica> Client::Drain(const v1::DrainRequest& request) {
  return Unary<v1::Replica>(
      router_, [&](auto& context, auto& response) { return admin_->Drain(&context, request, &response); });
}

}  // namespace kvring::cli
