// Router: requests from decision to completion.
#include <algorithm>

#include "common/check.h"
#include "router/router_impl.h"

namespace kvring::router {
namespace {
constexpr double kOutputMemory = 0.02;  // weight of one request in the mean output length
}  // namespace

ActiveRequest* Router::Impl::Find(RequestId id) {
  const auto it = active_.find(id);
  return it == active_.end() ? nullptr : &it->second;
}

ActiveRequest& Router::Impl::Open(const RequestView& view, Instant now) {
  static const PromptKey kNoPrompt;
  const auto [it, fresh] = active_.try_emplace(view.id);
  ActiveRequest& active = it->second;
  if (fresh) {
    active.started = now;
    active.arrival = ++requests_;
    without_session_ += view.session ? 0 : 1;
    active.story = log_.Open(view.id, view.name);
    DecisionRecord& record = *log_.Edit(active.story);
    record.model = view.model;
    record.at = now;
    record.session_source = view.session_source;
  }
  KVRING_CHECK(!active.placed && !active.ticket);
  active.prompt = view.prompt != nullptr ? view.prompt : &kNoPrompt;
  active.model = table_.Resolve(view.model);
  active.session = view.session;
  active.excluded.assign(view.excluded.begin(), view.excluded.end());
  active.max_output_tokens = view.max_output_tokens;
  active.listener = view.listener;
  active.decision = {};
  return active;
}

// Whoever is in line before a request goes before it, also when there is room.
Decision Router::Impl::OnRequest(const RequestView& view, Instant now) {
  ActiveRequest& active = Open(view, now);
  const Choices choices = Survey(active, now);
  if (active.excluded.empty()) retry_budget_.OnRequest();
  if (choices.nobody) {
    Refuse(active, Refusal::kNoEndpoints, now);
  } else if (!active.excluded.empty() && !retry_budget_.Take(now)) {
    Refuse(active, Refusal::kLimit, now);
  } else if (choices.none() || queue_.AnyBefore(active.model, RankOf(view, active))) {
    Wait(view, active, now);
  } else {
    Choose(active, choices, now);
  }
  Record(active);
  return active.decision;
}

void Router::Impl::Record(const ActiveRequest& active) {
  DecisionRecord* record = log_.Edit(active.story);
  if (record == nullptr) return;
  record->decision = active.decision;
  if (!active.decision.queued) ++record->attempts;
  const Replica* replica = active.placed ? table_.Find(active.replica) : nullptr;
  record->replica_name = replica ? replica->name : "";
}

Router::Impl::Choices Router::Impl::Survey(const ActiveRequest& active, Instant now) {
  const ReplicaTable::Pool& pool = table_.PoolOf(active.model, now);
  Choices choices{.with_room = pool.eligible};
  if (active.excluded.empty()) {
    choices.trial = table_.WantsTrial(pool, now);
  } else {
    choices.with_room = table_.Without(pool, active.excluded, allowed_);
  }
  choices.nobody = choices.none();
  if (config_.admission.on()) {
    choices.with_room =
        table_.WithRoom(choices.with_room, config_.admission.max_in_flight_per_replica, now, with_room_);
  }
  if (now < pool.slow_until) choices.with_room = table_.Warm(choices.with_room, now, warm_);
  return choices;
}

void Router::Impl::Choose(ActiveRequest& active, const Choices& choices, Instant now) {
  active.decision = {};
  active.decision.prompt_tokens = belief_.PromptTokens(*active.prompt, active.model);
  belief_.index().Locate(*active.prompt, path_);
  belief_.Ask(*active.prompt);
  Pick pick;
  if (choices.trial != nullptr) {
    choices.trial->health.BeginTrial();
    pick.slot = choices.trial->slot;
  } else {
    pick = ChooseByPolicy(active, choices.with_room, now);
  }
  Replica& chosen = *table_.at(pick.slot);
  active.decision.replica = active.replica = chosen.id;
  active.decision.reason = active.excluded.empty() ? pick.reason : Reason::kRetry;
  active.decision.candidates = std::move(pick.candidates);
  active.placed = true;
  active.trial = choices.trial != nullptr;
  const CacheBelief::Prediction prediction = belief_.Predict(path_, *active.prompt, active.model, chosen);
  active.decision.predicted_cached_tokens = prediction.cached_tokens;
  active.decision.prediction_exact = prediction.exact;
  const std::vector<uint32_t>& prefilling = chosen.load.prefilling;
  const uint32_t added_by = belief_.index().AddedBy(path_, chosen.slot);
  active.rests_on_computed = std::find(prefilling.begin(), prefilling.end(), added_by) == prefilling.end();
  active.decision.patience = Patience(chosen, active.decision.prompt_tokens - prediction.cached_tokens, now);
}

// A multiple of what the prompt should take behind the replica's backlog, and of the slowest first token of
// late: a fleet that is slow as a whole makes no replica look stuck.
Duration Router::Impl::Patience(const Replica& replica, int64_t uncached, Instant now) const {
  constexpr double kOfExpected = 4, kOfSlowest = 3;
  if (config_.patience.count() == 0 || !table_.prefill_model().known()) return {};
  const double rate = table_.PrefillRateOf(replica);
  const double expected_s = table_.prefill_model().FixedSeconds() + replica.BacklogSeconds(now, rate) +
                            static_cast<double>(uncached) / rate;
  return config_.patience + FromSeconds(kOfExpected * expected_s + kOfSlowest * slowest_first_token_s_);
}

Pick Router::Impl::ChooseByPolicy(const ActiveRequest& active, std::span<const uint32_t> eligible,
                                  Instant now) {
  PickInput input{.fleet = table_,
                  .belief = belief_,
                  .path = path_,
                  .eligible = eligible,
                  .prompt = *active.prompt,
                  .bytes_per_token = belief_.BytesPerToken(*active.prompt, active.model),
                  .prompt_tokens = active.decision.prompt_tokens,
                  .mean_output_tokens = mean_output_tokens_,
                  .session = active.session,
                  .now = now};
  const auto last = active.session ? sessions_.Find(*active.session) : std::nullopt;
  const Replica* last_replica = last ? table_.Find(last->replica) : nullptr;
  if (last_replica && input.IsEligible(last_replica->slot)) {
    input.session_slot = last_replica->slot;
    input.session_tokens = last->epoch == last_replica->epoch ? last->tokens : 0;
  }
  return policy_->Choose(input, random_);
}

void Router::Impl::OnDispatch(RequestId id, Instant now) {
  ActiveRequest* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr || active->charge.taken()) return;
  const int64_t uncached = active->decision.prompt_tokens - active->decision.predicted_cached_tokens;
  const auto output = active->max_output_tokens > 0
                          ? std::min<double>(active->max_output_tokens, mean_output_tokens_)
                          : mean_output_tokens_;
  active->charge.Take(*replica, uncached, uncached + static_cast<int64_t>(output),
                      table_.PrefillRateOf(*replica), now);
  active->dispatched = now;
  ++replica->counters.requests;
  if (active->session)
    sessions_.Put(*active->session, {replica->id, replica->epoch, active->decision.prompt_tokens});
  active->charge.Inserted(*replica, belief_.OnDispatch(*active->prompt, *replica));
}

void Router::Impl::OnAdmitted(RequestId id, const AdmittedReport& report) {
  ActiveRequest* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  active->charge.Admitted(*replica);
  const UsageReport sane =
      Sane({.prompt_tokens = report.prompt_tokens, .cached_tokens = report.cached_tokens});
  active->admitted = {.prompt_tokens = sane.prompt_tokens, .cached_tokens = *sane.cached_tokens};
  belief_.OnAdmitted(*active->prompt, *replica, report);
}

void Router::Impl::OnFirstToken(RequestId id, Instant now) {
  ActiveRequest* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  std::optional<int64_t> prefilled;
  if (active->admitted.prompt_tokens > 0)
    prefilled = active->admitted.prompt_tokens - active->admitted.cached_tokens;
  if (active->charge.awaiting())
    slowest_first_token_s_ = std::max(slowest_first_token_s_, ToSeconds(now - active->dispatched));
  active->charge.FirstToken(*replica, table_.prefill_model(), prefilled, now);
  DecisionRecord* record = log_.Edit(active->story);
  if (record != nullptr && record->ttft.count() == 0) record->ttft = now - active->started;
}

void Router::Impl::Release(ActiveRequest& active, Replica& replica, OutcomeClass outcome,
                           Duration retry_after, Instant now) {
  if (replica.Judge(outcome, active.trial, retry_after, now)) table_.Changed();
  active.trial = false;
  active.charge.End(replica, now);
  active.placed = false;
  active.charge = {};
  table_.Collect(replica);
  Touch();
}

void Router::Impl::OnAttemptFailed(RequestId id, const AttemptFailure& failure, Instant now) {
  ActiveRequest* active = Find(id);
  Replica* replica = active ? ReplicaOf(*active) : nullptr;
  if (replica == nullptr) return;
  Release(*active, *replica, failure.outcome, failure.retry_after, now);
}

// Engines have told negative counts and more cached tokens than the prompt has (after preemption): no counter
// of ours may follow them there (OBS-01).
UsageReport Router::Impl::Sane(const UsageReport& usage) {
  UsageReport sane = usage;
  sane.prompt_tokens = std::max(usage.prompt_tokens, 0);
  sane.completion_tokens = std::max(usage.completion_tokens, 0);
  if (usage.cached_tokens) sane.cached_tokens = std::clamp(*usage.cached_tokens, 0, sane.prompt_tokens);
  const bool told_so = sane.prompt_tokens == usage.prompt_tokens &&
                       sane.completion_tokens == usage.completion_tokens &&
                       sane.cached_tokens == usage.cached_tokens;
  usage_anomalies_ += told_so ? 0 : 1;
  return sane;
}

void Router::Impl::Learn(const ActiveRequest& active, Replica& replica, const UsageReport& usage) {
  replica.counters.prompt_tokens += static_cast<uint64_t>(usage.prompt_tokens);
  replica.counters.cached_tokens += static_cast<uint64_t>(usage.cached_tokens.value_or(0));
  replica.released_tokens += usage.prompt_tokens + usage.completion_tokens;
  mean_output_tokens_ += kOutputMemory * (usage.completion_tokens - mean_output_tokens_);
  if (usage.cached_tokens) {
    CountForesight(active, usage);
    CountReuse(active, replica, *usage.cached_tokens);
    LearnCapacity(active, replica, usage);
  }
  belief_.OnUsage(*active.prompt, active.model, replica, usage);
}

// Who never finds anything has no prefix cache, or does not tell of it: that is a warning, not a small cache.
void Router::Impl::CountReuse(const ActiveRequest& active, Replica& replica, int64_t cached) {
  constexpr int64_t kMuch = 64;  // tokens
  replica.reuses = replica.reuses || cached > 0;
  if (replica.reuses) {
    replica.vain_forecasts = 0;
  } else if (active.decision.predicted_cached_tokens >= kMuch) {
    ++replica.vain_forecasts;
  }
}

// What was still being prefilled for another request and is not found was not evicted.
void Router::Impl::LearnCapacity(const ActiveRequest& active, Replica& replica, const UsageReport& usage) {
  const bool told =
      replica.kv_source != CapacitySource::kUnknown && replica.kv_source != CapacitySource::kLearnt;
  if (told || config_.default_kv_tokens > 0 || !replica.reuses || !active.rests_on_computed) return;
  replica.capacity.Observe({.predicted = active.decision.predicted_cached_tokens,
                            .cached = *usage.cached_tokens,
                            .prompt = usage.prompt_tokens,
                            .held = belief_.IndexedTokens(replica, active.model)});
  if (replica.capacity.tokens() == replica.kv_tokens) return;
  replica.kv_tokens = replica.capacity.tokens();
  replica.kv_source = CapacitySource::kLearnt;
  SetIndexCapacity(replica);
}

// Over the last one to two thousand requests.
void Router::Impl::CountForesight(const ActiveRequest& active, const UsageReport& usage) {
  ++foresight_.requests;
  foresight_.predicted += active.decision.predicted_cached_tokens;
  foresight_.prompt += usage.prompt_tokens;
  foresight_.cached += *usage.cached_tokens;
  if (foresight_.requests < 2 * kForesightWindow) return;
  foresight_ = {foresight_.requests / 2, foresight_.predicted / 2, foresight_.prompt / 2,
                foresight_.cached / 2};
}

void Router::Impl::OnComplete(RequestId id, const CompletionReport& report, Instant now) {
  const auto it = active_.find(id);
  if (it == active_.end()) return;
  ActiveRequest& active = it->second;
  if (active.ticket) {
    queue_.Remove(*active.ticket);
    ++stats_.cancelled;
  }
  std::erase(shed_, id);
  DecisionLog::Closing closing{.outcome = report.outcome,
                               .predicted_cached_tokens = active.decision.predicted_cached_tokens,
                               .total = now - active.started};
  if (active.decision.replica) closing.reason = active.decision.reason;
  const std::optional<UsageReport> usage = report.usage ? std::optional(Sane(*report.usage)) : std::nullopt;
  if (usage) {
    closing.prompt_tokens = usage->prompt_tokens;
    closing.cached_tokens = usage->cached_tokens.value_or(-1);
    closing.completion_tokens = usage->completion_tokens;
  }
  if (Replica* replica = ReplicaOf(active)) {
    if (report.outcome == OutcomeClass::kOk && active.charge.awaiting()) OnFirstToken(id, now);
    if (usage) {
      Learn(active, *replica, *usage);
    } else if (!report.generated_bytes.empty()) {
      belief_.OnUsage(*active.prompt, active.model, *replica, {.generated_bytes = report.generated_bytes});
    }
    Release(active, *replica, report.outcome, {}, now);
  }
  log_.Close(active.story, closing);
  active_.erase(it);
}

}  // namespace kvring::router
