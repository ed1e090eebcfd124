// ExchangeClient: the requests on its stream.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "router/gateway/exchange_client_core.h"

namespace kvring::router {

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

std::vector<ExchangeClient::Core::Call> ExchangeClient::Core::CancelThose(
    absl::FunctionRef<bool(const Call&)> wanted) {
  std::vector<Call> cancelled;
  absl::MutexLock lock(&mutex_);
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (!wanted(it->second)) {
      ++it;
      continue;
    }
    cancelled.push_back(std::move(it->second));
    SendCancel(it->first);
    it = calls_.erase(it);
  }
  return cancelled;
}

void ExchangeClient::Core::BreakWaiting(std::string_view what) {
  for (const Call& call : CancelThose([](const Call& c) { return !c.any_delta; }))
    call.sink->OnBroken({.what = what});
}

void ExchangeClient::Core::ExpireLate(Instant now) {
  for (const Call& call : CancelThose([&](const Call& c) { return c.until && now >= *c.until; })) {
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

}  // namespace kvring::router
