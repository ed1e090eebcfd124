#include "router/fleet/token_estimator.h"

#include <algorithm>

namespace kvring::router {
namespace {
constexpr double kWindowTokens = 1e6;
constexpr double kPriorTokens = 16;
}  // namespace

void TokenEstimator::Learn(const std::string& model, int64_t prompt_bytes, int64_t prompt_tokens) {
  if (prompt_bytes <= 0 || prompt_tokens <= 0) return;
  Sums& sums = sums_[model];
  sums.bytes += static_cast<double>(prompt_bytes);
  sums.tokens += static_cast<double>(prompt_tokens);
  if (sums.tokens < kWindowTokens) return;
  sums.bytes *= 0.5;
  sums.tokens *= 0.5;
}

double TokenEstimator::BytesPerToken(const std::string& model) const {
  const auto it = sums_.find(model);
  if (it == sums_.end()) return kDefaultBytesPerToken;
  const double bytes = it->second.bytes + kPriorTokens * kDefaultBytesPerToken;
  return std::clamp(bytes / (it->second.tokens + kPriorTokens), 0.25, 1024.0);
}

}  // namespace kvring::router
