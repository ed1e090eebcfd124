#include "replica/server/exchange_call.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/runtime/clock.h"
#include "replica/server/grpc_messages.h"

namespace kvring::replica {
namespace {

// Bytes that may wait for a router; far above what a working one ever lets wait.
constexpr size_t kMaxWaitingBytes = size_t{64} << 20;
constexpr size_t kCacheEventBytes = 24;
constexpr Duration kLoadInterval = std::chrono::milliseconds(50);

class ExchangeReactor;

// What the engine thread collects for one router. The reactor is null once the call is over.
class Mailbox {
 public:
  Mailbox(ExchangeReactor* reactor, v1::ReplicaInfo info, uint64_t epoch) : reactor_(reactor), epoch_(epoch) {
    *waiting_.mutable_info() = std::move(info);
  }

  void Post(uint64_t id, v1::GenerateResponse response);
  void OnCacheSnapshot(const CacheEventBatch& snapshot);
  void OnStep(const LoopLoad& load, const CacheEventBatch& events);
  void WriteDone(bool ok);
  void Flush();
  void Close(const grpc::Status& status);
  void Detach() {
    absl::MutexLock lock(&mutex_);
    reactor_ = nullptr;
  }

 private:
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddCacheEvents(const CacheEventBatch& events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  ExchangeReactor* reactor_ ABSL_GUARDED_BY(mutex_);
  const uint64_t epoch_;
  v1::ExchangeResponse waiting_ ABSL_GUARDED_BY(mutex_);
  v1::ExchangeResponse sending_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Instant next_load_ ABSL_GUARDED_BY(mutex_);
  bool dirty_ ABSL_GUARDED_BY(mutex_) = true;  // the info goes out first
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// The requests of one stream that run, by the router's numbers, with their deadlines.
class RequestTable {
 public:
  // Before the request is submitted, since it may end before Submit returns.
  void Reserve(uint64_t id, std::optional<Instant> deadline) {
    absl::MutexLock lock(&mutex_);
    running_[id] = {GenerationId{}, deadline};
    if (deadline) deadlines_.insert({*deadline, id});
  }
  // False: the request has ended, or its time was up, in the meantime.
  bool Assign(uint64_t id, GenerationId generation) {
    absl::MutexLock lock(&mutex_);
    const auto it = running_.find(id);
    if (it == running_.end()) return false;
    it->second.generation = generation;
    return true;
  }
  std::optional<GenerationId> Remove(uint64_t id) {
    absl::MutexLock lock(&mutex_);
    return RemoveLocked(id);
  }
  // The requests whose time is up; they are removed.
  std::vector<std::pair<uint64_t, GenerationId>> TakeExpired(Instant now) {
    absl::MutexLock lock(&mutex_);
    std::vector<std::pair<uint64_t, GenerationId>> expired;
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      const uint64_t id = deadlines_.begin()->second;
      expired.emplace_back(id, *RemoveLocked(id));
    }
    return expired;
  }
  std::vector<GenerationId> TakeAll() {
    absl::MutexLock lock(&mutex_);
    std::vector<GenerationId> all;
    for (const auto& [id, entry] : running_) all.push_back(entry.generation);
    running_.clear();
    deadlines_.clear();
    return all;
  }

 private:
  struct Entry {
    GenerationId generation;
    std::optional<Instant> deadline;
  };
  std::optional<GenerationId> RemoveLocked(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = running_.find(id);
    if (it == running_.end()) return std::nullopt;
    if (it->second.deadline) deadlines_.erase({*it->second.deadline, id});
    const GenerationId generation = it->second.generation;
    running_.erase(it);
    return generation;
  }

  absl::Mutex mutex_;
  std::map<uint64_t, Entry> running_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<Instant, uint64_t>> deadlines_ ABSL_GUARDED_BY(mutex_);
};

class ExchangeSink : public GenerationSink {
 public:
  ExchangeSink(uint64_t id, std::shared_ptr<Mailbox> mailbox, std::shared_ptr<RequestTable> table)
      : id_(id), mailbox_(std::move(mailbox)), table_(std::move(table)) {}
  void OnAdmitted(const AdmittedInfo& info) override { mailbox_->Post(id_, ToMessage(info)); }
  void OnDelta(const GenerationDelta& delta) override { mailbox_->Post(id_, ToMessage(delta)); }
  void OnDone(const DoneInfo& info) override {
    table_->Remove(id_);
    mailbox_->Post(id_, ToMessage(info));
  }
  void OnError(const openai::ApiError& error) override {
    table_->Remove(id_);
    mailbox_->Post(id_, ToMessage(error));
  }

 private:
  const uint64_t id_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with the stream, which may end before its requests do
  std::shared_ptr<RequestTable> table_;
};

class ExchangeReactor : public grpc::ServerBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse>,
                        private EngineLoop::StepListener {
 public:
  ExchangeReactor(EngineLoop& loop, const ServedModel& model, v1::ReplicaInfo info)
      : loop_(loop),
        model_(model),
        mailbox_(std::make_shared<Mailbox>(this, info, info.epoch())),
        table_(std::make_shared<RequestTable>()) {
    mailbox_->Flush();
    listening_ = loop_.Listen(*this);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return mailbox_->Close(grpc::Status::OK);
    if (incoming_.has_start()) {
      Start(incoming_.start());
    } else if (incoming_.has_cancel()) {
      if (const auto generation = table_->Remove(incoming_.cancel().id())) loop_.Cancel(*generation);
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override { mailbox_->WriteDone(ok); }
  void OnCancel() override { mailbox_->Close({grpc::StatusCode::CANCELLED, "cancelled"}); }

  void OnDone() override {
    listening_.reset();
    mailbox_->Detach();
    for (GenerationId generation : table_->TakeAll()) loop_.Cancel(generation);
    delete this;
  }

 private:
  void Start(const v1::Start& start) {
    openai::GenerationRequest request;
    GenerationPlan plan;
    auto error = ReadGenerateRequest(start.request(), request);
    if (!error) error = PlanGeneration(model_, std::move(request), plan);
    if (error) {
      mailbox_->Post(start.id(), ToMessage(*error));
      return mailbox_->Flush();
    }
    std::optional<Instant> deadline;
    if (start.timeout_ms() > 0) deadline = Now() + std::chrono::milliseconds(start.timeout_ms());
    table_->Reserve(start.id(), deadline);
    const GenerationId generation =
        loop_.Submit(std::move(plan), std::make_shared<ExchangeSink>(start.id(), mailbox_, table_));
    if (!table_->Assign(start.id(), generation)) loop_.Cancel(generation);
    mailbox_->Flush();
  }

  void OnCacheSnapshot(const CacheEventBatch& snapshot) override { mailbox_->OnCacheSnapshot(snapshot); }
  void OnStep(const LoopLoad& load, const CacheEventBatch& events) override {
    for (const auto& [id, generation] : table_->TakeExpired(Now())) {
      loop_.Cancel(generation);
      mailbox_->Post(id, ToMessage(openai::ApiError{504, "server_error", "deadline_exceeded", "",
                                                    "The request's deadline has passed."}));
    }
    mailbox_->OnStep(load, events);
  }

  EngineLoop& loop_;
  const ServedModel& model_;
  std::shared_ptr<Mailbox> mailbox_;  // shared with the sinks of running requests
  std::shared_ptr<RequestTable> table_;
  std::unique_ptr<EngineLoop::Listening> listening_;
  v1::ExchangeRequest incoming_;
};

void Mailbox::Post(uint64_t id, v1::GenerateResponse response) {
  absl::MutexLock lock(&mutex_);
  if (reactor_ == nullptr || status_.has_value()) return;
  waiting_bytes_ += response.ByteSizeLong();
  v1::ExchangeResponse::Event& event = *waiting_.add_events();
  event.set_id(id);
  *event.mutable_response() = std::move(response);
  dirty_ = true;
  if (waiting_bytes_ > kMaxWaitingBytes)
    status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "the router reads too slowly");
}

template <class Messages>
void AppendCacheEvents(Messages& out, const std::vector<CacheEvent>& events) {
  for (const CacheEvent& event : events) {
    v1::CacheEvent& message = *out.Add();
    message.set_kind(event.kind == CacheEvent::Kind::kStored    ? v1::CacheEvent::STORED
                     : event.kind == CacheEvent::Kind::kRemoved ? v1::CacheEvent::REMOVED
                                                                : v1::CacheEvent::CLEARED);
    message.set_block_hash(event.hash.value);
    message.set_parent_hash(event.parent.value);
  }
}

void Mailbox::AddCacheEvents(const CacheEventBatch& events) {
  if (events.events.empty()) return;
  v1::CacheEvents& out = *waiting_.mutable_cache();
  if (out.events_size() == 0) out.set_first_sequence(events.first_sequence);
  out.set_epoch(epoch_);
  AppendCacheEvents(*out.mutable_events(), events.events);
  waiting_bytes_ += events.events.size() * kCacheEventBytes;
  dirty_ = true;
}

void Mailbox::OnCacheSnapshot(const CacheEventBatch& snapshot) {
  absl::MutexLock lock(&mutex_);
  v1::CacheSnapshot& out = *waiting_.mutable_snapshot();
  out.set_epoch(epoch_);
  out.set_next_sequence(snapshot.first_sequence);
  AppendCacheEvents(*out.mutable_stored(), snapshot.events);
  waiting_bytes_ += snapshot.events.size() * kCacheEventBytes;
  dirty_ = true;
}

void Mailbox::OnStep(const LoopLoad& load, const CacheEventBatch& events) {
  absl::MutexLock lock(&mutex_);
  if (reactor_ == nullptr) return;
  AddCacheEvents(events);
  const bool idle = load.engine.running + load.engine.waiting == 0;
  if (Now() >= next_load_ || idle) {
    *waiting_.mutable_load() = ToMessage(load);
    next_load_ = Now() + kLoadInterval;
    dirty_ = true;
  }
  if (!writing_) Advance();
}

void Mailbox::Flush() {
  absl::MutexLock lock(&mutex_);
  if (reactor_ != nullptr && !writing_) Advance();
}

void Mailbox::WriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok && !status_.has_value())
    status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the stream is broken");
  if (reactor_ != nullptr) Advance();
}

void Mailbox::Close(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!status_.has_value()) status_ = status;
  if (reactor_ != nullptr && !writing_) Advance();
}

void Mailbox::Advance() {
  if (finished_) return;
  if (status_.has_value()) {
    finished_ = true;
    reactor_->Finish(*status_);
  } else if (dirty_) {
    sending_ = std::exchange(waiting_, {});
    waiting_bytes_ = 0;
    dirty_ = false;
    writing_ = true;
    reactor_->StartWrite(&sending_);
  }
}

}  // namespace

grpc::ServerBidiReactor<v1::ExchangeRequest, v1::ExchangeResponse>* StartExchangeCall(
    EngineLoop& loop, const ServedModel& model, v1::ReplicaInfo info) {
  return new ExchangeReactor(loop, model, std::move(info));
}

}  // namespace kvring::replica
