#include "router/router.h"

#include <algorithm>
#include <cstdio>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "router/fleet/cache_belief.h"
#include "router/fleet/charge.h"
#include "router/fleet/replica_table.h"
#include "router/fleet/session_table.h"
#include "router/ledger/decision_log.h"
#include "router/policy/policy.h"

namespace kvring::router {
namespace {

constexpr size_t kSessionsKept = 1 << 18;
constexpr Duration kLeastRetryAfter = std::chrono::seconds(1);
constexpr double kOutputMemory = 0.02;  // weight of one request in the mean output length

/// One request between OnRequest and OnComplete.
struct Active {
  const PromptKey* prompt = nullptr;
  std::string model;
  std::optional<SessionKey> session;
  Decision decision;
  ReplicaId replica;  // of the attempt under way; valid while `placed`
  bool placed = false;
  bool trial = false;
  int32_t max_output_tokens = 0;
  Charge charge;
  AdmittedReport admitted;  // its span is not kept
  Instant started{};
};

}  // namespace

class Router::Impl {
 public:
  Impl(const RouterConfig& config, std::unique_ptr<Policy> policy)
      : config_(config),
        policy_(std::move(policy)),
        random_(config.seed),
        table_(config.health),
        belief_(config.index_bytes),
        sessions_(kSessionsKept),
        log_(config.kept_decisions) {}

  ReplicaId AddReplica(const ReplicaSpec& spec);
  void RemoveReplica(ReplicaId id);
  void OnReplicaFacts(Replica& replica, const ReplicaFacts& facts);
  Decision OnRequest(const RequestView& view, Instant now);
  void OnDispatch(RequestId id, Instant now);
  void OnAdmitted(RequestId id, const AdmittedReport& report);
  void OnFirstToken(RequestId id, Instant now);
  void OnAttemptFailed(RequestId id, const AttemptFailure& failure, Instant now);
  void OnComplete(RequestId id, const CompletionReport& report, Instant now);
  void Tick(Instant now);
  ReplicaView View(const Replica& replica, Instant now) const;
  std::vector<std::string> Warnings();

  ReplicaTable& table() { return table_; }
  CacheBelief& belief() { return belief_; }
  std::string_view policy_name() const { return config_.policy; }
  const DecisionLog& log() const { return log_; }

 private:
  Active* Find(RequestId id);
  Replica* ReplicaOf(const Active& active) { return active.placed ? table_.Find(active.replica) : nullptr; }
  void Choose(const RequestView& view, const ReplicaTable::Pool& pool, Active& active, Instant now);
  void Release(Active& active, Replica& replica, OutcomeClass outcome, Duration retry_after, Instant now);
  void Learn(const Active& active, Replica& replica, const UsageReport& usage);
  void SetIndexCapacity(const Replica& replica);

  RouterConfig config_;
  std::unique_ptr<Policy> policy_;
  Random random_;
  ReplicaTable table_;
  CacheBelief belief_;
  SessionTable sessions_;
  DecisionLog log_;
  absl::flat_hash_map<RequestId, Active> active_;  // look-up only
  ResidencyPath path_;
  std::vector<uint32_t> allowed_;
  double mean_output_tokens_ = 0;
  Instant ticked_{};
  uint64_t requests_ = 0;
  uint64_t without_session_ = 0;
};

// ---- membership ----

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
  replica.draining = facts.draining;
  table_.Changed();
  SetIndexCapacity(replica);
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
  ticked_ = now;
}

// ---- requests ----

Active* Router::Impl::Find(RequestId id) {
  const auto it = active_.find(id);
  return it == active_.end() ? nullptr : &it->second;
}

Decision Router::Impl::OnRequest(const RequestView& view, Instant now) {
  static const PromptKey kNoPrompt;
  const auto [it, fresh] = active_.try_emplace(view.id);
  Active& active = it->second;
  if (fresh) {
    active.started = now;
    ++requests_;
    without_session_ += view.session ? 0 : 1;
    DecisionRecord& record = log_.Open(view.id);
    record.model = view.model;
    record.at = now;
    record.session_source = view.session_source;
    log_.Named(view.id, view.name);
  }
  KVRING_CHECK(!active.placed);
  active.prompt = view.prompt != nullptr ? view.prompt : &kNoPrompt;
  active.model = table_.Resolve(view.model);
  active.session = view.session;
  active.max_output_tokens = view.max_output_tokens;
  active.decision = {};
  Choose(view, table_.PoolOf(active.model, now), active, now);
  if (DecisionRecord* record = log_.Edit(view.id)) {
    record->decision = active.decision;
    ++record->attempts;
    const Replica* replica = ReplicaOf(active);
    record->replica_name = replica ? replica->name : "";
  }
  return active.decision;
}

void Router::Impl::Choose(const RequestView& view, const ReplicaTable::Pool& pool, Active& active,
                          Instant now) {
  std::span<const uint32_t> eligible = pool.eligible;
  if (!view.excluded.empty()) eligible = table_.Without(pool, view.excluded, allowed_);
  Replica* trial = view.excluded.empty() ? table_.WantsTrial(pool, now) : nullptr;
  if (eligible.empty() && trial == nullptr) {
    active.decision.refusal = Refusal::kNoEndpoints;
    active.decision.retry_after = kLeastRetryAfter;
    return;
  }
  active.decision.prompt_tokens = belief_.PromptTokens(*active.prompt, active.model);
  belief_.index().Locate(*active.prompt, path_);
  belief_.Ask(*active.prompt, eligible.empty() ? 0 : table_.at(eligible.front())->block_size);
  Pick pick;
  if (trial != nullptr) {
    trial->health.BeginTrial();
    pick.slot = trial->slot;
  } else {
    PickInput input{.fleet = table_,
                    .belief = belief_,
                    .path = path_,
                    .eligible = eligible,
                    .prompt = *active.prompt,
                    .bytes_per_token = belief_.BytesPerToken(*active.prompt, active.model),
                    .prompt_tokens = active.decision.prompt_tokens,
                    .mean_output_tokens = mean_output_tokens_,
                    .session = view.session,
                    .now = now};
    const auto last = view.session ? sessions_.Find(*view.session) : std::nullopt;
    const Replica* last_replica = last ? table_.Find(last->replica) : nullptr;
    if (last_replica && input.IsEligible(last_replica->slot)) {
      input.session_slot = last_replica->slot;
      input.session_tokens = last->epoch == last_replica->epoch ? last->tokens : 0;
    }
    pick = policy_->Choose(input, random_);
  }
  Replica& chosen = *table_.at(pick.slot);
  active.decision.replica = active.replica = chosen.id;
  active.decision.reason = view.excluded.empty() ? pick.reason : Reason::kRetry;
  active.decision.candidates = std::move(pick.candidates);
  active.placed = true;
  active.trial = trial != nullptr;
  const CacheBelief::Prediction prediction = belief_.Predict(path_, *active.prompt, active.model, chosen);
  active.decision.predicted_cached_tokens = prediction.cached_tokens;
  active.decision.prediction_exact = prediction.exact;
}

void Router::Impl::OnDispatch(RequestId id, Instant now) {
  Active* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr || active->charge.taken()) return;
  const int64_t uncached = active->decision.prompt_tokens - active->decision.predicted_cached_tokens;
  const auto output = active->max_output_tokens > 0
                          ? std::min<double>(active->max_output_tokens, mean_output_tokens_)
                          : mean_output_tokens_;
  active->charge.Take(*replica, uncached, uncached + static_cast<int64_t>(output),
                      table_.PrefillRateOf(*replica), now);
  ++replica->counters.requests;
  if (active->session) sessions_.Put(*active->session, {replica->id, replica->epoch, active->decision.prompt_tokens});
  belief_.OnDispatch(*active->prompt, *replica);
}

void Router::Impl::OnAdmitted(RequestId id, const AdmittedReport& report) {
  Active* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  active->charge.Admitted(*replica);
  active->admitted = report;
  active->admitted.block_end_bytes = {};
  belief_.OnAdmitted(*active->prompt, *replica, report);
}

void Router::Impl::OnFirstToken(RequestId id, Instant now) {
  Active* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  std::optional<int64_t> prefilled;
  if (active->admitted.prompt_tokens > 0)
    prefilled = active->admitted.prompt_tokens - active->admitted.cached_tokens;
  active->charge.FirstToken(*replica, table_.prefill_model(), prefilled, now);
  DecisionRecord* record = log_.Edit(id);
  if (record != nullptr && record->ttft.count() == 0) record->ttft = now - active->started;
}

void Router::Impl::Release(Active& active, Replica& replica, OutcomeClass outcome, Duration retry_after,
                           Instant now) {
  if (replica.Judge(outcome, active.trial, retry_after, now)) table_.Changed();
  active.trial = false;
  active.charge.End(replica, now);
  active.placed = false;
  active.charge = {};
  table_.Collect(replica);
}

void Router::Impl::OnAttemptFailed(RequestId id, const AttemptFailure& failure, Instant now) {
  Active* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  Release(*active, *replica, failure.outcome, failure.retry_after, now);
}

void Router::Impl::Learn(const Active& active, Replica& replica, const UsageReport& usage) {
  replica.counters.prompt_tokens += static_cast<uint64_t>(std::max(usage.prompt_tokens, 0));
  replica.counters.cached_tokens += static_cast<uint64_t>(std::max(usage.cached_tokens.value_or(0), 0));
  replica.released_tokens += usage.prompt_tokens + usage.completion_tokens;
  mean_output_tokens_ += kOutputMemory * (usage.completion_tokens - mean_output_tokens_);
  belief_.OnUsage(*active.prompt, active.model, replica, usage);
}

void Router::Impl::OnComplete(RequestId id, const CompletionReport& report, Instant now) {
  const auto it = active_.find(id);
  if (it == active_.end()) return;
  Active& active = it->second;
  DecisionLog::Closing closing{.outcome = report.outcome,
                               .predicted_cached_tokens = active.decision.predicted_cached_tokens,
                               .total = now - active.started};
  if (active.decision.replica) closing.reason = active.decision.reason;
  if (report.usage) {
    closing.prompt_tokens = report.usage->prompt_tokens;
    closing.cached_tokens = report.usage->cached_tokens.value_or(-1);
    closing.completion_tokens = report.usage->completion_tokens;
  }
  if (Replica* replica = ReplicaOf(active)) {
    if (report.outcome == OutcomeClass::kOk && active.charge.awaiting()) OnFirstToken(id, now);
    if (report.usage) Learn(active, *replica, *report.usage);
    Release(active, *replica, report.outcome, {}, now);
  }
  log_.Close(id, closing);
  active_.erase(it);
}

// ---- operators ----

ReplicaView Router::Impl::View(const Replica& replica, Instant now) const {
  ReplicaView view = replica.View(now);
  view.indexed_tokens =
      belief_.IndexedTokens(replica, replica.models.empty() ? std::string() : replica.models.front());
  view.prefill_tokens_per_second = table_.PrefillRateOf(replica);
  return view;
}

std::vector<std::string> Router::Impl::Warnings() {
  std::vector<std::string> warnings;
  char text[160];
  if (policy_->wants_session() && without_session_ > 0) {
    std::snprintf(text, sizeof text, "%s: no session key on %llu of %llu requests", config_.policy.c_str(),
                  static_cast<unsigned long long>(without_session_),
                  static_cast<unsigned long long>(requests_));
    warnings.push_back(text);
  }
  return warnings;
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

ReplicaId Router::AddReplica(const ReplicaSpec& spec, Instant) { return impl_->AddReplica(spec); }
void Router::RemoveReplica(ReplicaId replica, Instant) { impl_->RemoveReplica(replica); }

void Router::SetDraining(ReplicaId id, bool draining, Instant) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  replica->draining = draining;
  impl_->table().Changed();
}

void Router::OnReplicaFacts(ReplicaId id, const ReplicaFacts& facts, Instant) {
  if (Replica* replica = impl_->table().Find(id)) impl_->OnReplicaFacts(*replica, facts);
}

void Router::OnProbe(ReplicaId id, bool ok, Instant) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  replica->health.OnProbe(ok);
  impl_->table().Changed();
}

void Router::OnLoadReport(ReplicaId id, const LoadReport& report, Instant now) {
  Replica* replica = impl_->table().Find(id);
  if (replica == nullptr) return;
  impl_->table().OnLoadReport(*replica, report, now);
}

void Router::OnCacheEvents(ReplicaId id, const CacheEventBatch& batch, Instant) {
  if (Replica* replica = impl_->table().Find(id)) impl_->belief().OnCacheEvents(*replica, batch);
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
std::vector<DecisionRecord> Router::RecentDecisions(size_t limit) const { return impl_->log().Recent(limit); }
Totals Router::totals() const { return impl_->log().totals(); }
std::string_view Router::policy() const { return impl_->policy_name(); }
std::vector<std::string> Router::Warnings() const { return impl_->Warnings(); }

}  // namespace kvring::router
