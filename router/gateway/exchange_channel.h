// The gRPC channel of one exchange client: one TCP connection of its own, with the client's limits and
// back-off.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "router/gateway/exchange_client.h"

namespace kvring::router {

std::shared_ptr<grpc::Channel> MakeExchangeChannel(const ExchangeOptions& options);
/// A deadline that far from now.
gpr_timespec FromNow(Duration wait);
/// Why a replica with that hash probe is refused (PFX-10).
std::string ProbeMismatch(uint64_t probe);

}  // namespace kvring::router
