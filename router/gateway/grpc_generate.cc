#include "router/gateway/grpc_generate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "router/gateway/body_splice.h"
#include "router/gateway/forward_head.h"
#include "router/gateway/gateway.h"
#include "router/gateway/grpc_answer.h"
#include "router/gateway/grpc_generate_call.h"

namespace kvring::router {
namespace {

// Milliseconds left; 0: no deadline.
uint32_t TimeLeftMs(const grpc::CallbackServerContext& context) {
  const gpr_timespec deadline = gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC);
  const int32_t left =
      gpr_time_to_millis(gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC)));  // INT32_MAX: none, or far
  return left == INT32_MAX ? 0 : static_cast<uint32_t>(std::max(left, 1));
}

}  // namespace

// ---- routing ----

void GenerateCall::Begin(Reactor* reactor) {
  absl::MutexLock lock(&mutex_);
  reactor_ = reactor;
  if (const auto error = ReadGrpcRequest(*message_, request_)) return Finish(StatusOf(*error));
  if (!WithinLimits()) return;
  model_ = shared_.ResolveModel(request_.model);
  if (key_ != nullptr && !key_->salt().empty()) request_.salt = key_->salt();
  if (request_.has_prompt()) prompt_ = request_.KeyFor(model_);
  Route();
  Proceed();
}

bool GenerateCall::WithinLimits() {
  if (key_ == nullptr) return true;
  const std::optional<Duration> wait = key_->Begin(started_);
  key_begun_ = !wait;
  if (!wait) return true;
  decision_ = {.refusal = Refusal::kLimit, .retry_after = *wait};
  shared_.outcomes[static_cast<size_t>(OutcomeClass::kRefused)]->Add();
  RefuseWith({429, "rate_limit_error", "limit", "", "The limits of this API key are used up."});
  return false;
}

bool GenerateCall::Route() {
  RequestView view{.id = id_,
                   .name = name_,
                   .model = model_,
                   .prompt = request_.has_prompt() ? &prompt_ : nullptr,
                   .max_output_tokens = request_.max_output_tokens,
                   .excluded = excluded_,
                   .priority = message_->priority(),
                   .listener = this};
  if (!request_.session.empty()) {
    view.session = SessionKeyOf(request_.session);
    view.session_source = SessionSource::kGrpcField;
  }
  owes_completion_ = true;
  const Instant now = attempt_ == 0 ? started_ : Now();
  if (const uint32_t left = TimeLeftMs(*context_)) view.deadline = now + std::chrono::milliseconds(left);
  Decision decision = shared_.guard.With([&](Router& router) {
    Decision made = router.OnRequest(view, now);
    if (made.replica) router.OnDispatch(id_, now);
    return made;
  });
  const bool goes_on = decision.replica || decision.queued;
  if (goes_on || attempt_ == 0) decision_ = std::move(decision);  // else what is told is the last attempt's
  return goes_on;
}

void GenerateCall::Proceed() {
  if (decision_.queued) return;
  if (!decision_.replica) return Refuse();
  StartAttempt();
}

// The core's lock is held, and calls take it under their own: the rest is done elsewhere.
void GenerateCall::OnReleased(RequestId, const Decision& decision) {
  shared_.bridge.Post([call = shared_from_this(), decision] { call->GoOn(decision); });
}

// A call that ended meanwhile is completed already: its place was given back by that.
void GenerateCall::GoOn(const Decision& decision) {
  absl::MutexLock lock(&mutex_);
  if (!owes_completion_ || reactor_ == nullptr) return;
  decision_ = decision;
  Proceed();
}

void GenerateCall::Refuse() {
  Complete(OutcomeClass::kRefused);
  const auto models = shared_.guard.With([](Router& router) { return router.Models(); });
  const bool empty = decision_.refusal == Refusal::kNoEndpoints || decision_.refusal == Refusal::kNone;
  if (empty && !models.empty() && std::find(models.begin(), models.end(), model_) == models.end()) {
    return Finish(StatusOf(openai::ModelNotFound(request_.model)));
  }
  RefuseWith({empty ? 503 : 429, "server_error", "", "",
              empty ? "No replica can take this request now." : "Too many requests are waiting."});
}

void GenerateCall::RefuseWith(const openai::ApiError& error) {
  const int64_t seconds = std::max<int64_t>(1, (decision_.retry_after.count() + 999'999'999) / 1'000'000'000);
  context_->AddTrailingMetadata("x-kvring-reason", std::string(RefusalName(decision_.refusal)));
  context_->AddTrailingMetadata("retry-after", absl::StrCat(seconds));
  Finish(StatusOf(error));
}

void GenerateCall::StartAttempt() {
  if (++attempt_ > 1) shared_.retries.Add();
  const absl::Status started = StartAtReplica();
  if (started.ok()) return;
  const std::string why(started.message());
  if (started.code() == absl::StatusCode::kResourceExhausted) {
    Complete(OutcomeClass::kClientError);
    return Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, why});
  }
  Log(LogLevel::kInfo, "gateway", "attempt failed",
      {{"request", name_}, {"why", why}, {"attempt", attempt_}});
  AttemptFailed({502, "server_error", "replica_failed", "", "The replica could not be reached."},
                OutcomeClass::kReplicaError);
}

std::string GenerateCall::BridgedBody() const {
  std::string body = OpenAiBodyOf(*message_, model_);
  if (key_ != nullptr && !key_->salt().empty()) SetString(body, "cache_salt", key_->salt());
  return body;
}

CallTimes GenerateCall::Times() const {
  const UpstreamTimeouts& bounds = shared_.options.timeouts;
  const Duration patience = decision_.patience.count() > 0 ? decision_.patience : bounds.first_byte;
  return {.client_ms = TimeLeftMs(*context_),
          .first_delta = std::min(patience, bounds.first_byte),
          .idle = bounds.idle};
}

absl::Status GenerateCall::StartAtReplica() {
  running_.reset();
  generated_ = request_.tokens.empty() ? AnswerPrefix(request_.chat) : "";
  auto sink = std::make_shared<Sink>(shared_from_this(), attempt_);
  const std::shared_ptr<Endpoint> endpoint = shared_.directory.Find(*decision_.replica);
  if (endpoint == nullptr) return absl::UnavailableError("the replica has left the fleet");
  replica_name_ = endpoint->name;
  grpc_ = shared_.fleet.Find(*decision_.replica);
  if (grpc_ == nullptr) {
    BridgedRequest request{.id = id_,
                           .endpoint = endpoint,
                           .name = name_,
                           .chat = request_.chat,
                           .body = BridgedBody(),
                           .first_byte = Times().first_delta};
    running_ = shared_.bridge.Start(std::move(request), std::move(sink));
    return absl::OkStatus();
  }
  v1::GenerateRequest forward = *message_;
  if (key_ != nullptr && !key_->salt().empty()) forward.set_cache_salt(key_->salt());
  if (!request_.model.empty() && model_ != request_.model) forward.set_model(model_);
  forward.set_request_id(name_);
  const auto started = grpc_->client().Start(std::move(forward), Times(), std::move(sink));
  if (started.ok()) running_ = *started;
  return started.status();
}

void GenerateCall::CancelAttempt() {
  if (!running_) return;
  if (grpc_ != nullptr) {
    grpc_->client().Cancel(*running_);
  } else {
    shared_.bridge.Cancel(*running_);
  }
  running_.reset();
}

// ---- events of the replica ----

void GenerateCall::OnEvent(int attempt, v1::GenerateResponse event) {
  absl::MutexLock lock(&mutex_);
  if (attempt != attempt_ || !owes_completion_) return;
  if (event.has_error()) {
    running_.reset();
    const openai::ApiError error = ErrorOf(event.error());
    return AttemptFailed(error, OutcomeOfError(error.http_status));
  }
  if (event.has_admitted()) {
    shared_.guard.With([&](Router& router) { router.OnAdmitted(id_, ReportOf(event.admitted()), Now()); });
  } else if (event.has_delta()) {
    TakeDelta(event.delta());
  } else if (event.has_usage()) {
    running_.reset();
    TakeUsage(*event.mutable_usage());
    Send(std::move(event));
    return Finish(grpc::Status::OK);
  }
  Send(std::move(event));
}

void GenerateCall::TakeDelta(const v1::Delta& delta) {
  if (!std::exchange(any_delta_, true))
    shared_.guard.With([&](Router& router) { router.OnFirstToken(id_, Now()); });
  if (delta.index() != 0) return;
  if (request_.tokens.empty()) generated_ += delta.text();
}

// A prompt of token ids is continued by nothing here: the replica counts its answer in bytes of text.
void GenerateCall::TakeUsage(v1::Usage& usage) {
  UsageReport report = ReportOf(usage, generated_);
  if (usage.cached_tokens() < 0) {
    report.cached_tokens.reset();
    usage.set_cached_tokens(0);
  }
  if (!request_.tokens.empty()) {
    const auto whole = std::upper_bound(report.block_end_bytes.begin(), report.block_end_bytes.end(),
                                        request_.tokens.size() * sizeof(TokenId));
    report.block_end_bytes =
        report.block_end_bytes.first(static_cast<size_t>(whole - report.block_end_bytes.begin()));
  }
  const bool told = report.prompt_tokens > 0;
  Complete(OutcomeClass::kOk, told ? std::optional(report) : std::nullopt);
}

void GenerateCall::OnBroken(int attempt, const BrokenCall& broken) {
  absl::MutexLock lock(&mutex_);
  if (attempt != attempt_ || !owes_completion_) return;
  running_.reset();
  ++losses_;
  Log(LogLevel::kInfo, "gateway", "attempt failed",
      {{"request", name_},
       {"replica", replica_name_},
       {"why", broken.what},
       {"attempt", attempt_},
       {"began", broken.any_delta ? 1 : 0}});
  if (broken.late) {
    return AttemptFailed({504, "server_error", "replica_timeout", "", "The replica did not answer in time."},
                         OutcomeClass::kTimeout);
  }
  AttemptFailed({502, "server_error", "replica_failed", "", "The replica could not be reached or broke off."},
                OutcomeClass::kReplicaError);
}

// Busy and failing replicas are left for others, as long as the client has had no delta. The client's own
// errors end the call.
void GenerateCall::AttemptFailed(const openai::ApiError& error, OutcomeClass outcome) {
  if (outcome != OutcomeClass::kClientError && !any_delta_ && TryElsewhere(outcome)) return Proceed();
  Complete(any_delta_ && outcome != OutcomeClass::kClientError ? OutcomeClass::kStreamError : outcome);
  Finish(StatusOf(error));
}

bool GenerateCall::TryElsewhere(OutcomeClass outcome) {
  const GrpcFrontOptions& options = shared_.options;
  if (attempt_ >= options.max_attempts || losses_ >= options.max_losses || reactor_ == nullptr) return false;
  shared_.guard.With([&](Router& router) { router.OnAttemptFailed(id_, {.outcome = outcome}, Now()); });
  excluded_.push_back(*decision_.replica);
  std::erase_if(outgoing_, [](const v1::GenerateResponse& event) { return event.has_admitted(); });
  return Route();
}

void GenerateCall::Complete(OutcomeClass outcome, const std::optional<UsageReport>& usage) {
  if (!std::exchange(owes_completion_, false)) return;
  shared_.sampler.Complete(shared_.guard, id_, {.outcome = outcome, .usage = usage}, Now());
  shared_.outcomes[static_cast<size_t>(outcome)]->Add();
  if (std::exchange(key_begun_, false))
    key_->End(usage ? int64_t{usage->prompt_tokens} + usage->completion_tokens : 0);
}

// ---- the client's side ----

void GenerateCall::Send(v1::GenerateResponse event) {
  if (reactor_ == nullptr || status_) return;
  outgoing_.push_back(std::move(event));
  Advance();
}

void GenerateCall::Finish(const grpc::Status& status) {
  if (status_) return;
  status_ = status;
  grpc_.reset();
  Advance();
}

// Admitted is held until a delta follows: before that the attempt may still move on to another replica.
void GenerateCall::Advance() {
  if (writing_ || finished_ || reactor_ == nullptr) return;
  AddDecision();
  if (!outgoing_.empty() && (any_delta_ || status_)) {
    writing_ = true;
    reactor_->StartWrite(&outgoing_.front());
  } else if (outgoing_.empty() && status_) {
    finished_ = true;
    reactor_->Finish(*status_);
  }
}

void GenerateCall::AddDecision() {
  if (metadata_added_ || !(any_delta_ || status_)) return;
  metadata_added_ = true;
  context_->AddInitialMetadata("x-request-id", name_);
  if (!shared_.options.decision_metadata || !decision_.replica) return;
  context_->AddInitialMetadata("x-kvring-replica", replica_name_);
  context_->AddInitialMetadata("x-kvring-reason", std::string(ReasonName(decision_.reason)));
  context_->AddInitialMetadata("x-kvring-predicted-cached-tokens",
                               absl::StrCat(decision_.predicted_cached_tokens));
}

void GenerateCall::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) outgoing_.clear();  // the client is gone: OnCancel says so, too
  if (!outgoing_.empty()) outgoing_.pop_front();
  Advance();
}

// Also at the client's deadline. Neither is the replica's fault.
void GenerateCall::OnCancel() {
  absl::MutexLock lock(&mutex_);
  CancelAttempt();
  Complete(OutcomeClass::kClientAbort);
  outgoing_.erase(outgoing_.begin() + (writing_ ? 1 : 0), outgoing_.end());
  Finish({grpc::StatusCode::CANCELLED, "cancelled"});
}

void GenerateCall::Detach() {
  absl::MutexLock lock(&mutex_);
  CancelAttempt();
  Complete(OutcomeClass::kClientAbort);
  reactor_ = nullptr;
  context_ = nullptr;
  message_ = nullptr;
  grpc_.reset();
}

// ---- reactor ----

Reactor::Reactor(GrpcFrontShared& shared, grpc::CallbackServerContext& context,
                 const v1::GenerateRequest& request, std::shared_ptr<ApiKey> key)
    : call_(std::make_shared<GenerateCall>(shared, context, request, std::move(key))) {
  call_->Begin(this);
}
void Reactor::OnWriteDone(bool ok) { call_->OnWritten(ok); }
void Reactor::OnCancel() { call_->OnCancel(); }
void Reactor::OnDone() {
  call_->Detach();
  delete this;
}

grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerate(GrpcFrontShared& shared,
                                                              grpc::CallbackServerContext& context,
                                                              const v1::GenerateRequest& request,
                                                              std::shared_ptr<ApiKey> key) {
  return new Reactor(shared, context, request, std::move(key));
}

}  // namespace kvring::router
