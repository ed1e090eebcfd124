#include "replica/server/generate_call.h"

#include <deque>
#include <optional>

#include "replica/server/grpc_messages.h"

namespace kvring::replica {
namespace {

class GenerateReactor;

// Messages on their way to the client. The reactor takes them one by one; it is null once the call is over.
class Outbox : public GenerationSink {
 public:
  explicit Outbox(GenerateReactor* reactor) : reactor_(reactor) {}

  void OnAdmitted(const AdmittedInfo& info) override { Push(ToMessage(info), std::nullopt); }
  void OnDelta(const GenerationDelta& delta) override { Push(ToMessage(delta), std::nullopt); }
  void OnDone(const DoneInfo& info) override { Push(ToMessage(info), grpc::Status::OK); }
  void OnError(const openai::ApiError& error) override { Push(std::nullopt, ToStatus(error)); }

  // The next message to write, or the status to finish with; neither: wait.
  void WriteNext();
  void Detach() {
    absl::MutexLock lock(&mutex_);
    reactor_ = nullptr;
  }

 private:
  void Push(std::optional<v1::GenerateResponse> message, std::optional<grpc::Status> status);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  GenerateReactor* reactor_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::GenerateResponse> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class GenerateReactor : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  GenerateReactor(EngineLoop& loop, const ServedModel& model, const v1::GenerateRequest& message)
      : loop_(loop), outbox_(std::make_shared<Outbox>(this)) {
    openai::GenerationRequest request;
    GenerationPlan plan;
    auto error = ReadGenerateRequest(message, request);
    if (!error) error = PlanGeneration(model, std::move(request), plan);
    if (error) {
      outbox_->OnError(*error);
    } else {
      id_ = loop_.Submit(std::move(plan), outbox_);
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) outbox_->WriteNext();
  }

  void OnCancel() override {
    loop_.Cancel(id_);
    outbox_->OnError({499, "server_error", "cancelled", "", "The call was cancelled."});
  }

  void OnDone() override {
    outbox_->Detach();
    delete this;
  }

 private:
  EngineLoop& loop_;
  std::shared_ptr<Outbox> outbox_;  // shared with the engine loop, which may end later or earlier
  GenerationId id_;
};

void Outbox::Push(std::optional<v1::GenerateResponse> message, std::optional<grpc::Status> status) {
  absl::MutexLock lock(&mutex_);
  if (reactor_ == nullptr || status_.has_value()) return;
  if (message.has_value()) messages_.push_back(std::move(*message));
  status_ = std::move(status);
  if (!writing_) Advance();
}

void Outbox::WriteNext() {
  absl::MutexLock lock(&mutex_);
  messages_.pop_front();
  writing_ = false;
  if (reactor_ != nullptr) Advance();
}

void Outbox::Advance() {
  if (!messages_.empty()) {
    writing_ = true;
    reactor_->StartWrite(&messages_.front());
  } else if (status_.has_value() && !finished_) {
    finished_ = true;
    reactor_->Finish(*status_);
  }
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* StartGenerateCall(EngineLoop& loop, const ServedModel& model,
                                                                  const v1::GenerateRequest& request) {
  return new GenerateReactor(loop, model, request);
}

}  // namespace kvring::replica
