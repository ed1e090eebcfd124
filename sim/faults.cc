#include "sim/faults.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/absl_view.h"
#include "common/status_macros.h"

namespace kvring::sim {
namespace {

constexpr std::pair<std::string_view, FaultKind> kKinds[] = {
    {"kill", FaultKind::kKill},   {"freeze", FaultKind::kFreeze}, {"slow", FaultKind::kSlow},
    {"leave", FaultKind::kLeave}, {"join", FaultKind::kJoin},     {"partition", FaultKind::kPartition}};

absl::Status SetField(absl::string_view name, absl::string_view text, Fault& fault) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0) || value > 1e6)
    return absl::InvalidArgumentError(
        absl::StrCat("fault field ", name, "=", text, " must be a number from 0 to 1e6"));
  if (name == "at") {
    fault.at = FromSeconds(value);
  } else if (name == "lasts") {
    fault.lasts = FromSeconds(value);
  } else if (name == "replica") {
    fault.replica = static_cast<uint32_t>(value);
  } else if (name == "router") {
    fault.router = static_cast<uint32_t>(value);
  } else if (name == "factor" && value > 0) {
    fault.factor = value;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "fault field ", name, "=", text, " is unknown or 0; known: at, lasts, replica, router, factor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Fault> ParseFault(std::string_view description) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(Absl(description), absl::MaxSplits(':', 1));
  const auto kind =
      std::ranges::find_if(kKinds, [&](const auto& known) { return Absl(known.first) == pair.first; });
  if (kind == std::end(kKinds))
    return absl::InvalidArgumentError(
        absl::StrCat("fault ", pair.first, " is unknown; known: kill, freeze, slow, leave, join, partition"));
  Fault fault{.kind = kind->second};
  if (pair.second.empty()) return fault;
  for (absl::string_view part : absl::StrSplit(pair.second, ',')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    KVRING_RETURN_IF_ERROR(SetField(field.first, field.second, fault));
  }
  return fault;
}

std::vector<Fault> RandomFaults(int count, uint32_t replicas, uint32_t routers, Duration until,
                                Random& random) {
  std::vector<Fault> faults;
  const double end = ToSeconds(until);
  for (int i = 0; i < count; ++i) {
    const double at = random.Uniform() * end * 0.8;
    faults.push_back({.kind = kKinds[random.Below(std::size(kKinds))].second,
                      .at = FromSeconds(at),
                      .lasts = FromSeconds(0.1 + random.Uniform() * (end - at - 0.1)),
                      .replica = static_cast<uint32_t>(random.Below(replicas)),
                      .factor = 1 + 4 * random.Uniform(),
                      .router = static_cast<uint32_t>(random.Below(routers))});
  }
  return faults;
}

}  // namespace kvring::sim
