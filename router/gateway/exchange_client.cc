#include "router/gateway/exchange_client.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/block_hash.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/exchange_channel.h"

namespace kvring::router {
namespace {

bool IsLast(const v1::GenerateResponse& event) { return event.has_usage() || event.has_error(); }

}  // namespace

// Everything that gRPC's threads touch. `busy_` counts streams, alarms and probes that will still call back.
class ExchangeClient::Core {
 public:
  Core(ExchangeOptions options, ExchangeListener& listener)
      : options_(std::move(options)),
        listener_(listener),
        channel_(MakeExchangeChannel(options_)),
        stub_(v1::Inference::NewStub(channel_)),
        wait_(options_.first_retry) {
    absl::MutexLock lock(&mutex_);
    Dial();
  }
  ~Core();

  absl::StatusOr<uint64_t> Start(v1::GenerateRequest request, const CallTimes& times,
                                 std::shared_ptr<ExchangeSink> sink);
  void Cancel(uint64_t id);
  void ExpireLate(Instant now);
  void BreakWaiting(std::string_view what);
  bool connected() const {
    absl::MutexLock lock(&mutex_);
    return open_;
  }
  size_t in_flight() const {
    absl::MutexLock lock(&mutex_);
    return calls_.size();
  }

 private:
  class Stream;
  struct Call {
    std::shared_ptr<ExchangeSink> sink;
    bool any_delta = false;
    Duration idle{};
    std::optional<Instant> until;
  };
  struct Probe {
    grpc::ClientContext context;
    v1::ListModelsRequest request;
    v1::ListModelsResponse response;
  };

  // Reactions of the stream.
  void OnMessage(v1::ExchangeResponse& message);
  void OnWritten(bool ok);
  void Forget();
  void OnStreamDone(const grpc::Status& status);

  void SendCancel(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Accept(const v1::ReplicaInfo& info);
  void Deliver(v1::ExchangeResponse::Event& event);
  void Dial() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetTimer(Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnTimer(uint64_t generation);
  void SetProbeTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendProbe();
  void OnProbed(bool ok);

  const ExchangeOptions options_;
  ExchangeListener& listener_;
  const std::shared_ptr<grpc::Channel> channel_;  // shared with gRPC's stub
  const std::unique_ptr<v1::Inference::Stub> stub_;

  mutable absl::Mutex mutex_;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // deletes itself when gRPC is done with it
  bool open_ ABSL_GUARDED_BY(mutex_) = false;         // its first message has come and was accepted
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::string refusal_ ABSL_GUARDED_BY(mutex_);                       // why we dropped the replica
  std::deque<v1::ExchangeRequest> outgoing_ ABSL_GUARDED_BY(mutex_);  // bounded by the requests that run
  std::map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  Duration wait_ ABSL_GUARDED_BY(mutex_);
  uint64_t timer_generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<grpc::Alarm> timer_ ABSL_GUARDED_BY(mutex_);  // of the dial, or until the next one
  std::unique_ptr<grpc::Alarm> probe_timer_ ABSL_GUARDED_BY(mutex_);
  Probe* probe_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool probing_ ABSL_GUARDED_BY(mutex_) = false;  // a probe or its timer is under way
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ExchangeClient::Core::Stream final
    : public grpc::ClientBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse> {
 public:
  explicit Stream(Core& core) : core_(core) {}

  void Begin() {
    core_.stub_->async()->Exchange(&context_, this);
    StartRead(&in_);
    AddHold();  // writes come from outside of reactions
    StartCall();
  }
  void Write(v1::ExchangeRequest request) {
    out_ = std::move(request);
    StartWrite(&out_);
  }
  void Cancel() { context_.TryCancel(); }
  // No Write after this one.
  void LetGo() {
    if (std::exchange(held_, false)) RemoveHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&core_.mutex_);
      broken_ = true;
      return LetGo();
    }
    core_.OnMessage(in_);
    in_.Clear();
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override { core_.OnWritten(ok); }
  // The context goes before the core hears of the end: the core's must be the last reference to the channel,
  // since gRPC 1.51 joins its callback threads when the last channel ends, and would here join the one that
  // it runs on.
  void OnDone(const grpc::Status& status) override {
    Core& core = core_;
    const grpc::Status last = status;
    core.Forget();
    delete this;
    core.OnStreamDone(last);
  }

  bool broken() const { return broken_; }

 private:
  Core& core_;
  grpc::ClientContext context_;
  v1::ExchangeResponse in_;
  v1::ExchangeRequest out_;
  bool held_ = true;     // guarded by the core's mutex
  bool broken_ = false;  // guarded by the core's mutex
};

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

absl::StatusOr<uint64_t> ExchangeClient::Core::Start(v1::GenerateRequest request, const CallTimes& times,
                                                     std::shared_ptr<ExchangeSink> sink) {
  v1::ExchangeRequest message;
  v1::Start& start = *message.mutable_start();
  *start.mutable_request() = std::move(request);
  start.set_timeout_ms(times.client_ms);
  absl::MutexLock lock(&mutex_);
  start.set_id(next_id_);
  const size_t size = message.ByteSizeLong();
  if (size > options_.max_message_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("The request takes ", size,
                                                     " bytes; a message to a replica may take ",
                                                     options_.max_message_bytes, "."));
  }
  if (stream_ == nullptr || stream_->broken() || stopping_) {
    return absl::UnavailableError(absl::StrCat(options_.address, ": not connected"));
  }
  const uint64_t id = next_id_++;
  Call& call = calls_[id];
  call.sink = std::move(sink);
  call.idle = times.idle;
  if (times.first_delta.count() > 0) call.until = Now() + times.first_delta;
  outgoing_.push_back(std::move(message));
  WriteNext();
  return id;
}

void ExchangeClient::Core::Cancel(uint64_t id) {
  absl::MutexLock lock(&mutex_);
  if (calls_.erase(id) > 0) SendCancel(id);
}

void ExchangeClient::Core::BreakWaiting(std::string_view what) {
  std::vector<std::shared_ptr<ExchangeSink>> broken;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (it->second.any_delta) {
        ++it;
        continue;
      }
      broken.push_back(std::move(it->second.sink));
      SendCancel(it->first);
      it = calls_.erase(it);
    }
  }
  for (const auto& sink : broken) sink->OnBroken({.what = what});
}

void ExchangeClient::Core::ExpireLate(Instant now) {
  std::vector<Call> late;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (!it->second.until || now < *it->second.until) {
        ++it;
        continue;
      }
      late.push_back(std::move(it->second));
      SendCancel(it->first);
      it = calls_.erase(it);
    }
  }
  for (const Call& call : late) {
    call.sink->OnBroken({.what = call.any_delta ? "the answer stalled" : "no first token in time",
                         .any_delta = call.any_delta,
                         .late = true});
  }
}

void ExchangeClient::Core::SendCancel(uint64_t id) {
  const auto unsent =
      std::find_if(outgoing_.begin(), outgoing_.end(),
                   [id](const v1::ExchangeRequest& message) { return message.start().id() == id; });
  if (unsent != outgoing_.end()) {
    outgoing_.erase(unsent);
    return;
  }
  outgoing_.emplace_back().mutable_cancel()->set_id(id);
  WriteNext();
}

void ExchangeClient::Core::WriteNext() {
  if (writing_ || outgoing_.empty() || stream_ == nullptr || stream_->broken()) return;
  writing_ = true;
  stream_->Write(std::move(outgoing_.front()));
  outgoing_.pop_front();
}

void ExchangeClient::Core::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (ok) WriteNext();
}

// ---- ExchangeClient ----

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
