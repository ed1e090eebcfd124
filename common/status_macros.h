// Early return on a non-OK absl::Status or StatusOr.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KVRING_RETURN_IF_ERROR(expression)                    \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define KVRING_CONCAT_INNER_(a, b) a##b
#define KVRING_CONCAT_(a, b) KVRING_CONCAT_INNER_(a, b)
/// KVRING_ASSIGN_OR_RETURN(auto x, F()): x is F()'s value, or the function returns F()'s status.
#define KVRING_ASSIGN_OR_RETURN(left, expression) \
  KVRING_ASSIGN_OR_RETURN_IMPL_(KVRING_CONCAT_(status_or_, __LINE__), left, expression)
#define KVRING_ASSIGN_OR_RETURN_IMPL_(result, left, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  left = std::move(result).value()
