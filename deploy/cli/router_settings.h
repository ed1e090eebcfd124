// RouterSettings: the configuration as the parts of a router take it: checked, defaults filled in. Pure but
// for the files of keys.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvring/v1/config.pb.h"
#include "router/events/kv_subscriber.h"
#include "router/gateway/access.h"
#include "router/gateway/gateway.h"
#include "router/gateway/grpc_front.h"
#include "router/router.h"

namespace kvring::cli {

/// Reads the files of keys into their fields. Errors name the field and the file.
absl::Status ReadKeyFiles(v1::RouterConfig& config);
/// Errors name the field: "backends[2].url: …".
absl::Status CheckRouterConfig(const v1::RouterConfig& config);
void FillDefaults(v1::RouterConfig& config);

router::RouterConfig CoreConfig(const v1::RouterConfig& config);
router::GatewayOptions HttpOptions(const v1::RouterConfig& config, size_t ready_replicas);
router::GrpcFrontOptions GrpcOptions(const v1::RouterConfig& config);
router::AccessRules AccessOf(const v1::RouterConfig& config);
std::vector<router::ReplicaSpec> BackendsOf(const v1::RouterConfig& config);
std::vector<router::KvSource> KvSourcesOf(const v1::RouterConfig& config);
/// Changed fields that a running router does not follow, one per line; empty: none.
std::string FieldsForRestart(const v1::RouterConfig& running, const v1::RouterConfig& wanted);

}  // namespace kvring::cli
