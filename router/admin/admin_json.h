// The JSON of the admin API: what the core tells, field for field. Internal to router/admin.
#pragma once

#include <boost/json.hpp>
#include <span>

#include "router/router.h"

namespace kvring::router {

boost::json::object ToJson(const ReplicaView& view);
boost::json::object BackendJson(const ReplicaView& view);
/// `views`: to name candidates. Those of replicas that left are named by their number.
boost::json::object ToJson(const DecisionRecord& record, std::span<const ReplicaView> views, Instant now);
boost::json::object ToJson(const Totals& totals);

}  // namespace kvring::router
