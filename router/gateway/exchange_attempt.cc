// Exchange: routing, attempts, retries and the report to the core.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "router/gateway/exchange.h"

namespace kvring::router {

// False: answered with 429. Routes that generate nothing count as requests, too.
bool Exchange::WithinLimits() {
  if (key_ == nullptr) return true;
  const std::optional<Duration> wait = key_->Begin(started_);
  key_begun_ = !wait;
  if (!wait) return true;
  refused_ = true;
  decision_ = {.refusal = Refusal::kLimit, .retry_after = *wait};
  loop_.shared().metrics.key_limited.Add();
  loop_.shared().metrics.Outcome(OutcomeClass::kRefused).Add();
  RefuseWith({429, "rate_limit_error", std::string(RefusalName(Refusal::kLimit)), "",
              "The limits of this API key are used up."});
  return false;
}

void Exchange::EndOfKey(int64_t tokens) {
  if (std::exchange(key_begun_, false)) key_->End(tokens);
}

// Asks the core. True: a replica is chosen and the request counts as in flight there, or it waits for one.
bool Exchange::Route() {
  RequestView view{
      .id = id_,
      .name = name_,
      .model = model_,
      .prompt = has_prompt_ ? &prompt_ : nullptr,
      .session_source = session_source_,
      .max_output_tokens = static_cast<int32_t>(std::clamp<int64_t>(openai_.max_tokens, 0, INT32_MAX)),
      .excluded = excluded_,
      .listener = &loop_};
  if (session_source_ != SessionSource::kNone) view.session = SessionKeyOf(session_name_);
  known_to_router_ = owes_completion_ = true;
  const Instant now = attempts_ == 0 ? started_ : Now();
  decision_ = loop_.shared().guard.With([&](Router& router) {
    Decision decision = router.OnRequest(view, now);
    if (decision.replica) router.OnDispatch(id_, now);
    return decision;
  });
  if (decision_.queued) loop_.Await(id_, *this);
  if (decision_.replica) endpoint_ = loop_.FindEndpoint(*decision_.replica);
  return decision_.replica || decision_.queued;
}

void Exchange::Proceed() {
  if (decision_.queued) return;
  if (!decision_.replica) return Refuse();
  StartAttempt();
}

void Exchange::OnReleased(const Decision& decision) {
  decision_ = decision;
  if (decision_.replica) endpoint_ = loop_.FindEndpoint(*decision_.replica);
  Proceed();
}

// An empty pool is 503, a full queue or a limit 429; both say when to come back.
void Exchange::Refuse() {
  refused_ = true;
  Complete(OutcomeClass::kRefused);
  const bool empty = decision_.refusal == Refusal::kNoEndpoints || decision_.refusal == Refusal::kNone;
  if (empty && !openai_.model.empty() && openai_.model != "default" && !loop_.ServesModel(model_) &&
      loop_.ServesAnyModel()) {
    return ReplyError(openai::ModelNotFound(openai_.model));
  }
  RefuseWith({.http_status = empty ? 503 : 429,
              .type = empty ? "server_error" : "rate_limit_error",
              .code = std::string(RefusalName(decision_.refusal)),
              .message = empty ? "No replica can take this request now."
                         : decision_.refusal == Refusal::kQueueTimeout
                             ? "The request has waited for too long."
                             : "Too many requests are waiting."});
}

void Exchange::RefuseWith(const openai::ApiError& error) {
  const int64_t seconds = std::max<int64_t>(1, (decision_.retry_after.count() + 999'999'999) / 1'000'000'000);
  ReplyError(error, absl::StrCat("Retry-After: ", seconds, "\r\n"));
}

void Exchange::StartAttempt() {
  if (++attempts_ > 1) loop_.shared().metrics.retries.Add();
  Upstream* upstream = endpoint_ ? loop_.UpstreamOf(*endpoint_) : nullptr;
  if (upstream == nullptr)
    return OnFailed({.outcome = OutcomeClass::kReplicaError, .what = "no way to reach it"});
  forward_head_.clear();
  AppendForwardHead(forward_head_,
                    {.head = client_.head(),
                     .peer = client_.peer(),
                     .request_name = name_,
                     .body_bytes = client_.body().size(),
                     .keep_authorization = key_ == nullptr,
                     .body_decoded = body_decoded_},
                    *endpoint_);
  attempt_ = upstream->Start({.id = id_,
                              .endpoint = endpoint_,
                              .name = name_,
                              .head = forward_head_,
                              .body = client_.body(),
                              .to_head_request = client_.head().method == "HEAD",
                              .first_byte = FirstByteBound(),
                              .route = route_,
                              .openai = route_ == GenerationRoute::kNone ? nullptr : &openai_,
                              .session = session_name_},
                             *this);
}

// The core knows how long a first token may take here. A whole answer over HTTP shows none: there the
// configured bound alone holds.
Duration Exchange::FirstByteBound() const {
  const Duration most = loop_.shared().options.timeouts.first_byte;
  const bool tells_tokens =
      route_ != GenerationRoute::kNone && (openai_.stream || endpoint_->url.scheme == "grpc");
  if (!tells_tokens || decision_.patience.count() == 0) return most;
  return std::min(decision_.patience, most);
}

// Reports the failed attempt and moves on. False: no attempt is left, or no other replica.
bool Exchange::TryElsewhere(const AttemptFailure& failure) {
  const GatewayOptions& options = loop_.shared().options;
  if (attempts_ >= options.max_attempts || losses_ >= options.max_losses) return false;
  loop_.shared().guard.With([&](Router& router) { router.OnAttemptFailed(id_, failure, Now()); });
  excluded_.push_back(*decision_.replica);
  const Decision before = decision_;
  const std::shared_ptr<Endpoint> endpoint_before = endpoint_;
  if (!Route()) {
    decision_ = before;  // what is told of the answer is what the last attempt was
    endpoint_ = endpoint_before;
    return false;
  }
  return true;
}

void Exchange::Complete(OutcomeClass outcome) {
  if (!owes_completion_) return;
  const Instant now = Now();
  CompletionReport report{.outcome = outcome};
  if (scan_) report.usage = scanner_.usage();
  if (scan_ && !report.usage && outcome == OutcomeClass::kOk) report.generated_bytes = scanner_.generated();
  if (usage_told_) report.usage = usage_told_;
  loop_.shared().sampler.Complete(loop_.shared().guard, id_, report, now);
  GatewayMetrics& metrics = loop_.shared().metrics;
  metrics.Outcome(outcome).Add();
  metrics.duration.Observe(ToSeconds(now - started_));
  if (scan_ && shape_.event_stream) {
    if (scanner_.bad_events() > 0) metrics.bad_events.Add(scanner_.bad_events());
    if (outcome == OutcomeClass::kOk && !scanner_.done_seen() && route_ != GenerationRoute::kNone)
      metrics.missing_done.Add();
  }
  EndOfKey(report.usage ? int64_t{report.usage->prompt_tokens} + report.usage->completion_tokens : 0);
  Ticked::unlink();
  loop_.StopAwaiting(id_);
  owes_completion_ = false;
}

void Exchange::OnFailed(const UpstreamFailure& failure) {
  attempt_ = nullptr;
  Log(LogLevel::kInfo, "gateway", "attempt failed",
      {{"request", name_},
       {"replica", endpoint_ ? std::string_view(endpoint_->name) : "unknown"},
       {"why", failure.what},
       {"attempt", attempts_}});
  if (head_sent_) return BreakOff(failure.outcome);
  answer_head_.clear();
  losses_ += failure.lost ? 1 : 0;
  if (TryElsewhere({.outcome = failure.outcome, .retry_after = failure.retry_after})) return Proceed();
  Complete(failure.outcome);
  if (failure.outcome == OutcomeClass::kTimeout) {
    return ReplyError({504, "server_error", "replica_timeout", "", "The replica did not answer in time."});
  }
  if (failure.outcome == OutcomeClass::kBackpressure) {
    return ReplyError({503, "server_error", "replicas_busy", "", "All replicas are busy."},
                      "Retry-After: 1\r\n");
  }
  ReplyError({502, "server_error", "replica_failed", "", "The replica could not be reached or broke off."});
}

void Exchange::OnGone() {
  if (attempt_ != nullptr) std::exchange(attempt_, nullptr)->Cancel();
  if (!owes_completion_) return;
  loop_.shared().metrics.client_closed.Add();
  Complete(OutcomeClass::kClientAbort);
}

}  // namespace kvring::router
