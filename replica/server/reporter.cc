#include "replica/server/reporter.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "absl/time/time.h"
#include "common/runtime/log.h"
#include "kvring/v1/fleet.grpc.pb.h"

namespace kvring::replica {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(1);
constexpr absl::Duration kFirstRetry = absl::Milliseconds(100);
constexpr absl::Duration kLastRetry = absl::Seconds(2);

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
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
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::RegisterResponse response;
    const grpc::Status status = stub->Register(&context, request, &response);
    if (status.ok() != registered) {
      Log(status.ok() ? LogLevel::kInfo : LogLevel::kWarn, "replica",
          status.ok() ? "registered" : "router lost",
          {{"router", router}, {"error", status.error_message()}});
    }
    registered = status.ok();
    wait = registered ? absl::Milliseconds(std::max<uint32_t>(response.lease_ms(), 300) / 3.0)
                      : std::min(wait * 2, kLastRetry);
  } while (!stopping_.WaitForNotificationWithTimeout(wait));

  grpc::ClientContext context;
  SetDeadline(context);
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
