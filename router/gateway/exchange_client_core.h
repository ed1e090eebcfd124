// ExchangeClient's own: what gRPC's threads touch, and its one stream. For exchange_client.cc (the stream,
// its redials and probes) and exchange_calls.cc (the requests on it) alone.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/exchange_channel.h"
#include "router/gateway/exchange_client.h"

namespace kvring::router {

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

  /// Gives up the calls that are wanted; their sinks are told by the caller, without the lock.
  std::vector<Call> CancelThose(absl::FunctionRef<bool(const Call&)> wanted);
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

}  // namespace kvring::router
