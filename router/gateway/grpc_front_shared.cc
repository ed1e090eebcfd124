#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/runtime/entropy.h"
#include "router/gateway/grpc_generate.h"

namespace kvring::router {
namespace {

constexpr uint64_t kGrpcIds = uint64_t{1} << 63;  // the HTTP front counts from 1

std::array<Counter*, kOutcomeClasses> OutcomeCounters(MetricRegistry& metrics) {
  std::array<Counter*, kOutcomeClasses> counters;
  for (int i = 0; i < kOutcomeClasses; ++i) {
    counters[static_cast<size_t>(i)] =
        &metrics.GetCounter("kvring_requests_total", "Requests by how they ended.",
                            {{"outcome", std::string(OutcomeName(static_cast<OutcomeClass>(i)))}});
  }
  return counters;
}

}  // namespace

GrpcFrontShared::GrpcFrontShared(const GrpcFrontOptions& o, RouterGuard& g, GrpcFleet& f,
                                 MetricRegistry& metrics, GrpcFrontHooks h)
    : options(o),
      guard(g),
      fleet(f),
      hooks(std::move(h)),
      directory(g, o.access),
      sampler(o.decision_log_share),
      bridge(o.timeouts),
      outcomes(OutcomeCounters(metrics)),
      retries(metrics.GetCounter("kvring_retries_total", "Attempts after the first of a request.")),
      name_salt(RandomSeed()) {}

RequestId GrpcFrontShared::NextId() {
  return {kGrpcIds | next_request.fetch_add(1, std::memory_order_relaxed)};
}

std::string GrpcFrontShared::NameOf(RequestId id) const {
  return absl::StrCat("req-", absl::Hex(MixBits(name_salt + id.value), absl::kZeroPad16));
}

std::string GrpcFrontShared::ResolveModel(const std::string& asked) {
  const auto access = options.access->view();
  if (const auto alias = access->aliases.find(asked); alias != access->aliases.end()) return alias->second;
  if (!asked.empty() && asked != "default") return asked;
  const auto models = guard.With([](Router& router) { return router.Models(); });
  return models.empty() ? asked : models.front();
}

}  // namespace kvring::router
