// Internal to grpc_generate.cc: one Generate call and its reactor. All state of a call is under its own
// mutex, which is taken before the core's guard, never inside it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "router/gateway/forward_head.h"
#include "router/gateway/grpc_generate.h"
#include "router/gateway/grpc_request.h"

namespace kvring::router {

// The call's own object lives until its last attempt has let go; the reactor only as long as gRPC wants it.
class GenerateCall;

class Reactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  Reactor(GrpcFrontShared& shared, grpc::CallbackServerContext& context, const v1::GenerateRequest& request,
          std::shared_ptr<ApiKey> key);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  const std::shared_ptr<GenerateCall> call_;
};

class GenerateCall final : public QueueListener, public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(GrpcFrontShared& shared, grpc::CallbackServerContext& context,
               const v1::GenerateRequest& message, std::shared_ptr<ApiKey> key)
      : shared_(shared),
        key_(std::move(key)),
        id_(shared.NextId()),
        name_(IsUsableRequestName(message.request_id()) ? message.request_id() : shared.NameOf(id_)),
        started_(Now()),
        context_(&context),
        message_(&message) {}

  void Begin(Reactor* reactor);
  void OnEvent(int attempt, v1::GenerateResponse event);
  void OnBroken(int attempt, const BrokenCall& broken);
  void OnWritten(bool ok);
  void OnCancel();
  void Detach();
  /// It waited in the queue: it may go, or is refused.
  void OnReleased(RequestId request, const Decision& decision) override;

 private:
  class Sink;

  void GoOn(const Decision& decision);
  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Route() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WithinLimits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseWith(const openai::ApiError& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string BridgedBody() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartAttempt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CallTimes Times() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartAtReplica() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelAttempt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryElsewhere(OutcomeClass outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AttemptFailed(const openai::ApiError& error, OutcomeClass outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeDelta(const v1::Delta& delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeUsage(v1::Usage& usage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(OutcomeClass outcome, const std::optional<UsageReport>& usage = std::nullopt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(v1::GenerateResponse event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddDecision() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GrpcFrontShared& shared_;
  const std::shared_ptr<ApiKey> key_;  // shared with the access rules, which may change meanwhile
  const RequestId id_;
  const std::string name_;
  const Instant started_;

  absl::Mutex mutex_;
  // gRPC's; null once the call is over.
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);
  const v1::GenerateRequest* message_ ABSL_GUARDED_BY(mutex_);

  GrpcRequest request_ ABSL_GUARDED_BY(mutex_);
  std::string model_ ABSL_GUARDED_BY(mutex_);
  PromptKey prompt_ ABSL_GUARDED_BY(mutex_);
  bool key_begun_ ABSL_GUARDED_BY(mutex_) = false;  // the key's limits count this request
  bool owes_completion_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<ReplicaId> excluded_ ABSL_GUARDED_BY(mutex_);
  Decision decision_ ABSL_GUARDED_BY(mutex_);
  std::string replica_name_ ABSL_GUARDED_BY(mutex_);
  int attempt_ ABSL_GUARDED_BY(mutex_) = 0;  // events of others are late
  int losses_ ABSL_GUARDED_BY(mutex_) = 0;   // attempts whose replica had the request and was lost
  std::shared_ptr<GrpcReplica> grpc_ ABSL_GUARDED_BY(mutex_);  // of this attempt; null: over HTTP
  std::optional<uint64_t> running_ ABSL_GUARDED_BY(mutex_);
  bool any_delta_ ABSL_GUARDED_BY(mutex_) = false;
  std::string generated_ ABSL_GUARDED_BY(mutex_);  // of choice 0: text, or ids as bytes

  // Bounded by the length of the answer: the client's flow control holds writes back.
  std::deque<v1::GenerateResponse> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool metadata_added_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class GenerateCall::Sink final : public ExchangeSink {
 public:
  Sink(std::shared_ptr<GenerateCall> call, int attempt) : call_(std::move(call)), attempt_(attempt) {}
  void OnEvent(v1::GenerateResponse event) override { call_->OnEvent(attempt_, std::move(event)); }
  void OnBroken(const BrokenCall& broken) override { call_->OnBroken(attempt_, broken); }

 private:
  const std::shared_ptr<GenerateCall> call_;  // shared with the reactor, which may end first
  const int attempt_;
};

}  // namespace kvring::router
