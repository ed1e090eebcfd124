// The router's YAML file: read strictly against its schema (proto/kvring/v1/config.proto): unknown or wrong
// fields are errors that name their path and line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kvring/v1/config.pb.h"

namespace kvring::cli {

absl::StatusOr<v1::RouterConfig> ReadRouterConfig(const std::string& path);
/// The same from text; `name` stands for the file in errors.
absl::StatusOr<v1::RouterConfig> ParseRouterConfig(const std::string& yaml, const std::string& name);

}  // namespace kvring::cli
