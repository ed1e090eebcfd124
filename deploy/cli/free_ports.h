// Ports of 127.0.0.1 that were free a moment ago, all different.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace kvring::cli {

absl::StatusOr<std::vector<int>> FreePorts(int count);

}  // namespace kvring::cli
