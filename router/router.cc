#include "router/router.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "router/router_impl.h"

namespace kvring::router {
namespace {
constexpr size_t kSessionsKept = 1 << 18;
constexpr double kPatienceHalfLifeSeconds = 60;
constexpr int64_t kManyVainForecasts = 100;
}  // namespace

// ---- membership ----

Router::Impl::Impl(const RouterConfig& config, std::unique_ptr<Policy> policy)
    : config_(config),
      policy_(std::move(policy)),
      random_(config.seed),
      table_(config.health),
      belief_(config.index_bytes),
      sessions_(kSessionsKept),
      log_(config.kept_decisions),
      retry_budget_(config.retries) {}

ReplicaId Router::Impl::AddReplica(const ReplicaSpec& spec) {
  Replica& replica = table_.Add(spec);
  SetIndexCapacity(replica);
  return replica.id;
}

void Router::Impl::RemoveReplica(ReplicaId id) {
  Replica* replica = table_.Find(id);
  if (replica == nullptr) return;
  belief_.Forget(*replica);
  table_.Remove(*replica);
}

void Router::Impl::OnReplicaFacts(Replica& replica, const ReplicaFacts& facts) {
  if (facts.epoch != replica.epoch) {
    if (replica.epoch.value != 0) belief_.Forget(replica);
    replica.epoch = facts.epoch;
    replica.reported = false;
    replica.health.OnNewEpoch();
  }
  replica.health.OnContact();
  if (!facts.models.empty()) replica.models = facts.models;
  if (facts.kv_tokens > 0 && replica.kv_source != CapacitySource::kConfig) {
    replica.kv_tokens = facts.kv_tokens;
    replica.kv_source = facts.kv_source;
  }
  replica.block_size = facts.block_size;
  replica.context_length = facts.context_length;
  replica.leaving = facts.draining;
  table_.Changed();
  SetIndexCapacity(replica);
  Touch();
}

void Router::Impl::SetIndexCapacity(const Replica& replica) {
  const int64_t tokens = replica.kv_tokens > 0 ? replica.kv_tokens : config_.default_kv_tokens;
  const std::string& model = replica.models.empty() ? table_.Resolve("") : replica.models.front();
  belief_.SetCapacity(replica, model, tokens);
}

void Router::Impl::Tick(Instant now) {
  const double seconds = ToSeconds(now - ticked_);
  for (Replica* replica : table_.members()) {
    SetIndexCapacity(*replica);
    if (seconds > 0) replica->UpdateReleaseRate(seconds);
  }
  if (seconds > 0) slowest_first_token_s_ *= std::exp2(-seconds / kPatienceHalfLifeSeconds);
  ticked_ = now;
  Touch();
}

// ---- operators ----

ReplicaView Router::Impl::View(const Replica& replica, Instant now) const {
  ReplicaView view = replica.View(now);
  view.indexed_tokens =
      belief_.IndexedTokens(replica, replica.models.empty() ? std::string() : replica.models.front());
  view.prefill_tokens_per_second = table_.PrefillRateOf(replica);
  view.events = belief_.Events(replica);
  return view;
}

std::vector<std::string> Router::Impl::Warnings() {
  std::vector<std::string> warnings;
  if (policy_->wants_session() && without_session_ > 0) {
    warnings.push_back(absl::StrCat(config_.policy, ": no session key on ", without_session_, " of ",
                                    requests_, " requests"));
  }
  if (foresight_.fails()) {
    warnings.push_back(absl::StrCat("predictions: next to nothing was expected in caches over ",
                                    foresight_.requests, " requests, yet engines report ",
                                    100 * foresight_.cached / foresight_.prompt, " % cached"));
  }
  for (const std::string& model : Panics()) {
    warnings.push_back(absl::StrCat("panic: more than half of the pool of ", model, " is ejected; ",
                                    config_.health.panic == PanicRule::kRefuse
                                        ? "its requests are refused"
                                        : "ejected replicas are used as well"));
  }
  for (const Replica* replica : table_.members()) WarnOf(*replica, warnings);
  return warnings;
}

std::vector<std::string> Router::Impl::Panics() {
  std::vector<std::string> panics;
  for (const std::string& model : table_.Models()) {
    if (table_.PoolOf(model, ticked_).panic) panics.push_back(model);
  }
  return panics;
}

void Router::Impl::WarnOf(const Replica& replica, std::vector<std::string>& warnings) const {
  const EventsView events = belief_.Events(replica);
  if (events.state == EventsState::kMissing) {
    warnings.push_back(absl::StrCat(replica.name, ": cache events are missing (gap ", events.gaps,
                                    "); what was sent there is believed instead"));
  }
  if (replica.vain_forecasts >= kManyVainForecasts) {
    warnings.push_back(absl::StrCat(replica.name, ": reports no cached tokens, though ",
                                    replica.vain_forecasts,
                                    " prompts began like earlier ones; is its prefix cache on?"));
  }
  if (!replica.load_error.empty()) {
    warnings.push_back(
        absl::StrCat(replica.name, ": load unknown (", replica.load_error, "); own counts are used"));
  }
}

// ---- façade ----

std::unique_ptr<Router> Router::Create(const RouterConfig& config) {
  std::unique_ptr<Policy> policy = MakePolicy(config.policy);
  if (policy == nullptr) return nullptr;
  return std::unique_ptr<Router>(new Router(std::make_unique<Impl>(config, std::move(policy))));
}

Router::Router(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Router::~Router() = default;

std::vector<std::string> Router::PolicyNames() { return router::PolicyNames(); }

ReplicaId Router::AddReplica(const ReplicaSpec& spec, Instant) {
  impl_->Touch();
  return impl_->AddReplica(spec);
}
void Router::RemoveReplica(ReplicaId replica, Instant) { impl_->RemoveReplica(replica); }

void Router::SetDraining(ReplicaId id, bool draining, Instant) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  replica->drained = draining;
  impl_->table().Changed();
  impl_->Touch();
}

void Router::OnReplicaFacts(ReplicaId id, const ReplicaFacts& facts, Instant) {
  if (Replica* replica = impl_->table().Find(id)) impl_->OnReplicaFacts(*replica, facts);
}

void Router::OnProbe(ReplicaId id, bool ok, Instant now) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  replica->health.OnProbe(ok, now);
  impl_->table().Changed();
  impl_->Touch();
}

void Router::OnLoadReport(ReplicaId id, const LoadReport& report, Instant now) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  impl_->table().OnLoadReport(*replica, report, now);
}

void Router::OnLoadUnknown(ReplicaId id, std::string_view why) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  ++replica->load_errors;
  replica->load_error = why;
}

EventsTaken Router::OnCacheEvents(ReplicaId id, const CacheEventBatch& batch, Instant) {
  const Replica* replica = impl_->table().Find(id);
  return replica ? impl_->belief().OnCacheEvents(*replica, batch) : EventsTaken{BatchFate::kIgnored};
}

Decision Router::OnRequest(const RequestView& request, Instant now) { return impl_->OnRequest(request, now); }
void Router::OnDispatch(RequestId request, Instant now) { impl_->OnDispatch(request, now); }
void Router::OnAdmitted(RequestId request, const AdmittedReport& report, Instant) {
  impl_->OnAdmitted(request, report);
}
void Router::OnFirstToken(RequestId request, Instant now) { impl_->OnFirstToken(request, now); }
void Router::OnAttemptFailed(RequestId request, const AttemptFailure& failure, Instant now) {
  impl_->OnAttemptFailed(request, failure, now);
}
void Router::OnComplete(RequestId request, const CompletionReport& report, Instant now) {
  impl_->OnComplete(request, report, now);
}
bool Router::MayRelease() const { return impl_->MayRelease(); }
std::vector<Released> Router::TakeReady(Instant now) { return impl_->TakeReady(now); }
void Router::Tick(Instant now) { impl_->Tick(now); }

std::vector<ReplicaView> Router::Replicas(Instant now) const {
  std::vector<ReplicaView> views;
  for (const Replica* replica : impl_->table().members()) views.push_back(impl_->View(*replica, now));
  return views;
}

std::optional<ReplicaView> Router::FindReplica(std::string_view name_or_url) const {
  const Replica* replica = impl_->table().FindByNameOrUrl(name_or_url);
  return replica ? std::optional(impl_->View(*replica, replica->reported_at)) : std::nullopt;
}

std::vector<std::string> Router::Models() const { return impl_->table().Models(); }
std::optional<DecisionRecord> Router::Why(std::string_view id) const { return impl_->log().Find(id); }
std::optional<DecisionRecord> Router::Story(RequestId request) const {
  return impl_->log().FindById(request);
}
std::vector<DecisionRecord> Router::RecentDecisions(size_t limit) const { return impl_->log().Recent(limit); }
QueueStats Router::queue_stats() const { return impl_->queue_stats(); }
Totals Router::totals() const { return impl_->log().totals(); }
uint64_t Router::retries_refused() const { return impl_->retries_refused(); }
std::vector<std::string> Router::Panics() const { return impl_->Panics(); }
uint64_t Router::usage_anomalies() const { return impl_->usage_anomalies(); }
std::string_view Router::policy() const { return impl_->policy_name(); }
std::vector<std::string> Router::Warnings() const { return impl_->Warnings(); }

}  // namespace kvring::router
