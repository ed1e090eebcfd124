#include "deploy/cli/audit_check.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace kvring::cli {
namespace {

bool Holds(double value, const std::string& relation, double bound) {
  if (relation == ">=") return value >= bound;
  if (relation == "<=") return value <= bound;
  if (relation == ">") return value > bound;
  return value < bound;
}

}  // namespace

absl::StatusOr<AuditCheck> AuditCheck::Parse(const std::string& text) {
  AuditCheck check;
  check.text_ = text;
  std::string plain = text;
  std::erase(plain, ' ');
  const size_t relation = plain.find_first_of("<>");
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat(
      "--check '", text,
      "': must be ceiling, achieved or gap, then >=, <=, > or <, then a share, like 'ceiling>=80%'"));
  if (relation == std::string::npos) return wrong;
  const size_t bound = plain.find_first_not_of("<>=", relation);
  if (bound == std::string::npos) return wrong;
  check.name_ = plain.substr(0, relation);
  check.relation_ = plain.substr(relation, bound - relation);
  std::string number = plain.substr(bound);
  const bool percent = number.ends_with('%');
  if (percent) number.pop_back();
  if (!absl::SimpleAtod(number, &check.bound_)) return wrong;
  if (percent) check.bound_ /= 100;
  const bool known_name = check.name_ == "ceiling" || check.name_ == "achieved" || check.name_ == "gap";
  const bool known_relation =
      check.relation_ == ">=" || check.relation_ == "<=" || check.relation_ == ">" || check.relation_ == "<";
  if (!known_name || !known_relation || !(check.bound_ >= 0 && check.bound_ <= 1)) return wrong;
  return check;
}

absl::Status AuditCheck::Test(const router::ReuseSums& sums) const {
  if (name_ != "ceiling" && sums.told_requests == 0)
    return absl::FailedPreconditionError(
        absl::StrCat("--check '", text_, "': the log reports no cached tokens"));
  double value = sums.ceiling_rate();
  if (name_ == "achieved") value = sums.achieved_rate();
  if (name_ == "gap") value = std::max(0.0, sums.told_ceiling_rate() - sums.achieved_rate());
  if (Holds(value, relation_, bound_)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("--check '%s': %s is %.1f %%", text_, name_, 100 * value));
}

}  // namespace kvring::cli
