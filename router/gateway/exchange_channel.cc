#include "router/gateway/exchange_channel.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/block_hash.h"

namespace kvring::router {

std::shared_ptr<grpc::Channel> MakeExchangeChannel(const ExchangeOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  const auto millis = [](Duration d) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
  };
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, millis(options.first_retry));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, millis(options.last_retry));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, millis(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one TCP connection per client, closed with it
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (options.tls && !options.tls->server_name.empty())
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  return grpc::CreateCustomChannel(options.address, ChannelCredentialsOf(options.tls), arguments);
}

gpr_timespec FromNow(Duration wait) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  return gpr_time_from_millis(millis, GPR_TIMESPAN);
}

std::string ProbeMismatch(uint64_t probe) {
  return absl::StrCat("hash probe ", absl::Hex(probe, absl::kZeroPad16), " is not ours, ",
                      absl::Hex(HashProbe(), absl::kZeroPad16), ": the two sides hash prompts differently");
}

}  // namespace kvring::router
