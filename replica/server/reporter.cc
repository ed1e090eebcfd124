#include "replica/server/reporter.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>

#include "absl/time/time.h"
#include "common/runtime/log.h"
#include "kvring/v1/fleet.grpc.pb.h"

namespace kvring::replica {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(1);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLastRetry = absl::Seconds(2);

void Prepare(grpc::ClientContext& context, const std::string& api_key) {
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  if (!api_key.empty()) context.AddMetadata("authorization", "Bearer " + api_key);
}

}  // namespace

Reporter::Reporter(Options options) : options_(std::move(options)) {
  for (const std::string& router : options_.routers) threads_.emplace_back([this, router] { Run(router); });
}

Reporter::~Reporter() {
  stopping_.Notify();
  for (std::thread& thread : threads_) thread.join();
}

void Reporter::Run(const std::string& router) {
  const auto stub = v1::Fleet::NewStub(grpc::CreateChannel(router, grpc::InsecureChannelCredentials()));
  v1::RegisterRequest request;
  request.set_address(options_.address);
  request.set_epoch(options_.epoch.value);
  request.mutable_models()->Add(options_.models.begin(), options_.models.end());
  absl::Duration wait = kFirstRetry;
  bool registered = false;
  std::optional<std::string> told;  // the last outcome that was logged; empty: registered
  do {
    grpc::ClientContext context;
    Prepare(context, options_.api_key);
    v1::RegisterResponse response;
    const grpc::Status status = stub->Register(&context, request, &response);
    registered = status.ok();
    if (told != status.error_message()) {
      Log(registered ? LogLevel::kInfo : LogLevel::kWarn, "replica",
          registered ? "registered" : "not registered at router",
          {{"router", router}, {"error", status.error_message()}});
      told = status.error_message();
    }
    wait = registered ? absl::Milliseconds(std::max<uint32_t>(response.lease_ms(), 300) / 3.0)
                      : std::min(wait * 2, kLastRetry);
  } while (!stopping_.WaitForNotificationWithTimeout(wait));

  grpc::ClientContext context;
  Prepare(context, options_.api_key);
  v1::DeregisterRequest leave;
  leave.set_address(options_.address);
  leave.set_epoch(options_.epoch.value);
  v1::DeregisterResponse left;
  const grpc::Status status = stub->Deregister(&context, leave, &left);
  if (!status.ok())
    Log(LogLevel::kInfo, "replica", "could not take leave",
        {{"router", router}, {"error", status.error_message()}});
}

}  // namespace kvring::replica
