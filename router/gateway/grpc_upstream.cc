#include "router/gateway/grpc_upstream.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/utf8.h"
#include "router/gateway/grpc_answer.h"
#include "router/gateway/grpc_fleet.h"

namespace kvring::router {
namespace {

class GrpcUpstream;

struct Arrival {
  uint64_t attempt = 0;
  std::optional<v1::GenerateResponse> event;
  std::string broken;  // where there is no event
  bool late = false;
  bool lost = false;
};

// Between gRPC's threads and the loop; shared by both.
class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  Inbox(GrpcUpstream* owner, LoopPoster poster) : owner_(owner), poster_(std::move(poster)) {}

  void Push(Arrival arrival) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    arrivals_.push_back(std::move(arrival));
    Wake();
  }
  void Nudge() {
    absl::MutexLock lock(&mutex_);
    if (!closed_) Wake();
  }
  std::vector<Arrival> Take() {
    absl::MutexLock lock(&mutex_);
    posted_ = false;
    return std::exchange(arrivals_, {});
  }
  // Loop thread.
  void Close() {
    owner_ = nullptr;
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    arrivals_.clear();
  }

 private:
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GrpcUpstream* owner_;  // loop thread only; null once it ended
  const LoopPoster poster_;
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
};

class InboxSink final : public ExchangeSink {
 public:
  InboxSink(std::shared_ptr<Inbox> inbox, uint64_t attempt) : inbox_(std::move(inbox)), attempt_(attempt) {}
  void OnEvent(v1::GenerateResponse event) override { inbox_->Push({attempt_, std::move(event), ""}); }
  void OnBroken(const BrokenCall& broken) override {
    inbox_->Push({attempt_, std::nullopt, std::string(broken.what), broken.late, true});
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const uint64_t attempt_;
};

class GrpcAttempt final : public Attempt {
 public:
  GrpcAttempt(GrpcUpstream& upstream, uint64_t id, AnswerSink& sink)
      : upstream_(upstream), id_(id), sink_(&sink) {}

  void Cancel() override;
  void Pause() override { paused_ = true; }
  void Resume() override;

  // Loop thread; `this` stays valid though the sink may cancel.
  void Take(Arrival arrival);
  void TakeHeld();
  bool ended() const { return ended_; }

  std::shared_ptr<GrpcReplica> replica;  // shared with the fleet, which the replica may leave
  std::optional<uint64_t> call;          // running at the replica
  std::optional<GrpcAnswer> answer;

 private:
  void Tell(const Arrival& arrival);

  GrpcUpstream& upstream_;
  const uint64_t id_;
  AnswerSink* sink_;
  bool paused_ = false;
  bool ended_ = false;
  std::deque<Arrival> held_;
};

class GrpcUpstream final : public Upstream {
 public:
  GrpcUpstream(GrpcFleet& fleet, const UpstreamTimeouts& timeouts, LoopPoster poster)
      : fleet_(fleet), timeouts_(timeouts), inbox_(std::make_shared<Inbox>(this, std::move(poster))) {}
  ~GrpcUpstream() override {
    inbox_->Close();
    for (auto& [id, attempt] : attempts_) {
      if (!attempt->ended()) attempt->Cancel();
    }
  }

  Attempt* Start(const UpstreamRequest& request, AnswerSink& sink) override;
  void Drain();
  void Sweep(uint64_t id) {
    ended_.push_back(id);
    inbox_->Nudge();
  }
  void Resumed(uint64_t id) {
    resumed_.push_back(id);
    inbox_->Nudge();
  }

 private:
  void Send(const UpstreamRequest& request, uint64_t id, GrpcAttempt& attempt);
  void Refuse(uint64_t id, const openai::ApiError& error);

  GrpcFleet& fleet_;
  const UpstreamTimeouts timeouts_;
  const std::shared_ptr<Inbox> inbox_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<GrpcAttempt>> attempts_;
  std::vector<uint64_t> ended_;  // freed by the next Drain: their calls may be on the stack now
  std::vector<uint64_t> resumed_;
};

void Inbox::Wake() {
  if (std::exchange(posted_, true)) return;
  poster_([self = shared_from_this()] {
    if (self->owner_ != nullptr) self->owner_->Drain();
  });
}

// ---- attempt ----

void GrpcAttempt::Cancel() {
  if (std::exchange(ended_, true)) return;
  if (call && replica) replica->client().Cancel(*call);
  upstream_.Sweep(id_);
}

void GrpcAttempt::Resume() {
  if (std::exchange(paused_, false)) upstream_.Resumed(id_);
}

void GrpcAttempt::Take(Arrival arrival) {
  if (ended_) return;
  if (paused_ || !held_.empty()) {
    held_.push_back(std::move(arrival));
  } else {
    Tell(arrival);
  }
}

void GrpcAttempt::TakeHeld() {
  while (!paused_ && !ended_ && !held_.empty()) {
    const Arrival arrival = std::move(held_.front());
    held_.pop_front();
    Tell(arrival);
  }
}

void GrpcAttempt::Tell(const Arrival& arrival) {
  bool last = true;
  if (!arrival.event) {
    ended_ = true;
    upstream_.Sweep(id_);
    return sink_->OnFailed({.outcome = arrival.late ? OutcomeClass::kTimeout : OutcomeClass::kReplicaError,
                            .what = arrival.broken,
                            .lost = arrival.lost});
  }
  last = answer->Take(*arrival.event, *sink_, ended_);
  if (last && !std::exchange(ended_, true)) upstream_.Sweep(id_);
}

// ---- upstream ----

Attempt* GrpcUpstream::Start(const UpstreamRequest& request, AnswerSink& sink) {
  const uint64_t id = next_id_++;
  auto& attempt = attempts_[id] = std::make_unique<GrpcAttempt>(*this, id, sink);
  attempt->replica = fleet_.Find(request.endpoint->replica);
  if (attempt->replica == nullptr) {
    inbox_->Push({id, std::nullopt, "the replica has left the fleet"});
    return attempt.get();
  }
  attempt->answer.emplace(request, attempt->replica->model());
  if (request.route == GenerationRoute::kNone || request.openai == nullptr) {
    Refuse(id, {501, "invalid_request_error", "unsupported", "",
                "The replicas of this model take chat completions and completions only."});
  } else {
    Send(request, id, *attempt);
  }
  return attempt.get();
}

void GrpcUpstream::Send(const UpstreamRequest& request, uint64_t id, GrpcAttempt& attempt) {
  v1::GenerateRequest message;
  v1::OpenAiBody& body = *message.mutable_openai_body();
  body.set_route(request.route == GenerationRoute::kChat ? "/v1/chat/completions" : "/v1/completions");
  body.set_body(request.body.data(), request.body.size());
  // A header may hold any bytes, a proto string only text: the name is a hint, and as such as good with
  // U+FFFD in it.
  AppendValidUtf8(*message.mutable_session_id(), request.session);
  message.set_request_id(std::string(request.name));
  const CallTimes times{.first_delta = request.first_byte, .idle = timeouts_.idle};
  auto call =
      attempt.replica->client().Start(std::move(message), times, std::make_shared<InboxSink>(inbox_, id));
  if (call.ok()) {
    attempt.call = *call;
  } else if (call.status().code() == absl::StatusCode::kResourceExhausted) {
    Refuse(id, {413, "invalid_request_error", "request_too_large", "", std::string(call.status().message())});
  } else {
    inbox_->Push({id, std::nullopt, std::string(call.status().message())});
  }
}

void GrpcUpstream::Refuse(uint64_t id, const openai::ApiError& error) {
  v1::GenerateResponse event;
  v1::Error& message = *event.mutable_error();
  message.set_http_status(error.http_status);
  message.set_type(error.type);
  message.set_code(error.code);
  message.set_message(error.message);
  inbox_->Push({id, std::move(event), ""});
}

void GrpcUpstream::Drain() {
  for (const uint64_t id : std::exchange(resumed_, {})) {
    if (const auto it = attempts_.find(id); it != attempts_.end()) it->second->TakeHeld();
  }
  for (Arrival& arrival : inbox_->Take()) {
    if (const auto it = attempts_.find(arrival.attempt); it != attempts_.end())
      it->second->Take(std::move(arrival));
  }
  for (const uint64_t id : std::exchange(ended_, {})) attempts_.erase(id);
}

}  // namespace

std::unique_ptr<Upstream> MakeGrpcUpstream(GrpcFleet& fleet, const UpstreamTimeouts& timeouts,
                                           LoopPoster poster) {
  return std::make_unique<GrpcUpstream>(fleet, timeouts, std::move(poster));
}

}  // namespace kvring::router
