// A condition on the result of an audit, for CI: ceiling>=80%, achieved>0.5, gap<=10% (gap: ceiling minus
// achieved, of the requests that report their cached tokens).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "router/ledger/reuse_levels.h"

namespace kvring::cli {

class AuditCheck {
 public:
  /// InvalidArgument shows the form.
  static absl::StatusOr<AuditCheck> Parse(const std::string& text);

  /// Ok, or FailedPrecondition with the condition and the value; also where the log does not tell the value.
  absl::Status Test(const router::ReuseSums& sums) const;

 private:
  std::string text_;
  std::string name_;
  std::string relation_;
  double bound_ = 0;
};

}  // namespace kvring::cli
