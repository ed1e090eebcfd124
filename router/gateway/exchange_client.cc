#include "router/gateway/exchange_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/block_hash.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "router/gateway/exchange_client_core.h"

namespace kvring::router {
namespace {

bool IsLast(const v1::GenerateResponse& event) { return event.has_usage() || event.has_error(); }

}  // namespace

ExchangeClient::Core::~Core() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    if (timer_) timer_->Cancel();
    if (probe_timer_) probe_timer_->Cancel();
    if (probe_ != nullptr) probe_->context.TryCancel();
  }
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* busy) { return *busy == 0; }, &busy_));
}

// ---- connection ----

void ExchangeClient::Core::Dial() {
  stream_ = new Stream(*this);
  ++busy_;
  refusal_.clear();
  SetTimer(options_.connect_timeout);
  stream_->Begin();
}

void ExchangeClient::Core::SetTimer(Duration wait) {
  const uint64_t generation = ++timer_generation_;
  timer_ = std::make_unique<grpc::Alarm>();  // the old one's call comes soon, and is of an old generation
  ++busy_;
  timer_->Set(FromNow(wait), [this, generation](bool) { OnTimer(generation); });
}

void ExchangeClient::Core::OnTimer(uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  --busy_;
  if (stopping_ || generation != timer_generation_) return;
  if (stream_ == nullptr) {
    Dial();
  } else if (!open_) {
    refusal_ = "no answer within the connect time-out";
    stream_->Cancel();
  }
}

bool ExchangeClient::Core::Accept(const v1::ReplicaInfo& info) {
  absl::MutexLock lock(&mutex_);
  if (info.hash_probe() != HashProbe()) {
    refusal_ = ProbeMismatch(info.hash_probe());
    Log(LogLevel::kError, "router", "replica refused", {{"address", options_.address}, {"reason", refusal_}});
    wait_ = options_.last_retry;
    stream_->Cancel();
    return false;
  }
  if (!open_) ++timer_generation_;  // the dial's time-out is off
  open_ = true;
  wait_ = options_.first_retry;
  unanswered_ = 0;
  if (!probing_ && !stopping_) SetProbeTimer();
  return true;
}

void ExchangeClient::Core::OnMessage(v1::ExchangeResponse& message) {
  if (message.has_info()) {
    if (!Accept(message.info())) return;
    listener_.OnInfo(message.info());
  } else if (!connected()) {
    return;  // refused, or a replica that does not say what it is: the dial's time-out ends it
  }
  if (message.has_load()) listener_.OnLoad(message.load());
  if (message.has_snapshot()) listener_.OnCacheSnapshot(message.snapshot());
  if (message.has_cache()) listener_.OnCacheEvents(message.cache());
  for (v1::ExchangeResponse::Event& event : *message.mutable_events()) Deliver(event);
}

void ExchangeClient::Core::Deliver(v1::ExchangeResponse::Event& event) {
  std::shared_ptr<ExchangeSink> sink;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = calls_.find(event.id());
    if (it == calls_.end()) return;  // cancelled
    Call& call = it->second;
    call.any_delta |= event.response().has_delta();
    if (call.any_delta) call.until = call.idle.count() > 0 ? std::optional(Now() + call.idle) : std::nullopt;
    sink = it->second.sink;
    if (IsLast(event.response())) calls_.erase(it);
  }
  sink->OnEvent(std::move(*event.mutable_response()));
}

// The stream is over; its object is about to go.
void ExchangeClient::Core::Forget() {
  absl::MutexLock lock(&mutex_);
  stream_ = nullptr;
  open_ = false;
  ++timer_generation_;
}

void ExchangeClient::Core::OnStreamDone(const grpc::Status& status) {
  std::map<uint64_t, Call> broken;
  std::string why;
  {
    absl::MutexLock lock(&mutex_);
    why = !refusal_.empty() ? refusal_
          : status.ok()     ? "the replica ended the stream"
                            : status.error_message();
    broken.swap(calls_);
    outgoing_.clear();
    writing_ = false;
  }
  for (auto& [id, call] : broken) call.sink->OnBroken({.what = why, .any_delta = call.any_delta});
  listener_.OnDown(why);
  absl::MutexLock lock(&mutex_);
  if (!stopping_) {
    SetTimer(wait_);
    wait_ = std::min(wait_ * 2, options_.last_retry);
  }
  --busy_;
}

// ---- probes ----

void ExchangeClient::Core::SetProbeTimer() {
  probing_ = true;
  probe_timer_ = std::make_unique<grpc::Alarm>();
  ++busy_;
  probe_timer_->Set(FromNow(options_.probe_interval), [this](bool) { SendProbe(); });
}

void ExchangeClient::Core::SendProbe() {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || !open_) {
    probing_ = false;
    --busy_;
    return;
  }
  probe_ = new Probe;
  probe_->context.set_deadline(FromNow(options_.probe_timeout));
  stub_->async()->ListModels(&probe_->context, &probe_->request, &probe_->response,
                             [this](const grpc::Status& status) { OnProbed(status.ok()); });
}

void ExchangeClient::Core::OnProbed(bool ok) {
  bool tell = false;
  {
    absl::MutexLock lock(&mutex_);
    delete std::exchange(probe_, nullptr);
    tell = open_ && !stopping_;
    unanswered_ = ok ? 0 : unanswered_ + 1;
    if (tell && unanswered_ >= options_.probes_until_cut) {  // open: there is a stream
      refusal_ = absl::StrCat(unanswered_, " probes in a row were not answered");
      stream_->Cancel();
    }
  }
  if (tell) listener_.OnProbe(ok);
  absl::MutexLock lock(&mutex_);
  probing_ = false;
  if (open_ && !stopping_) SetProbeTimer();
  --busy_;
}

// ---- requests ----

ExchangeClient::ExchangeClient(ExchangeOptions options, ExchangeListener& listener)
    : core_(std::make_unique<Core>(std::move(options), listener)) {}
ExchangeClient::~ExchangeClient() = default;

absl::StatusOr<uint64_t> ExchangeClient::Start(v1::GenerateRequest request, const CallTimes& times,
                                               std::shared_ptr<ExchangeSink> sink) {
  return core_->Start(std::move(request), times, std::move(sink));
}
void ExchangeClient::ExpireLate(Instant now) { core_->ExpireLate(now); }
void ExchangeClient::Cancel(uint64_t id) { core_->Cancel(id); }
void ExchangeClient::BreakWaiting(std::string_view what) { core_->BreakWaiting(what); }
bool ExchangeClient::connected() const { return core_->connected(); }
size_t ExchangeClient::in_flight() const { return core_->in_flight(); }

}  // namespace kvring::router
