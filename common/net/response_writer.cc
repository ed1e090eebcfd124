#include "common/net/response_writer.h"

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"

namespace kvring::net {
namespace {

void AppendChunk(std::string& out, std::string_view data) {
  absl::StrAppend(&out, absl::Hex(data.size()), "\r\n", Absl(data), "\r\n");
}

}  // namespace

ResponseWriter::Impl::Impl(ServerExchange& exchange, EventLoop& loop, const HttpServerOptions& options,
                           Shape shape)
    : loop_(loop),
      congested_bytes_(options.congested_bytes),
      max_buffered_bytes_(options.max_buffered_bytes),
      shape_(shape),
      exchange_(&exchange) {}

void ResponseWriter::Impl::AppendHead(int status, const Headers& headers, bool whole) {
  absl::StrAppend(&buffer_, "HTTP/1.1 ", status, " ", Absl(ReasonPhrase(status)), "\r\n");
  for (const auto& [name, value] : headers) {
    if (whole && EqualIgnoringCase(name, "content-length")) continue;
    absl::StrAppend(&buffer_, name, ": ", value, "\r\n");
  }
  if (!whole && !FindHeader(headers, "content-length")) {
    chunked_ = shape_.chunkable;
    until_close_ = !shape_.chunkable;
    if (chunked_) buffer_.append("Transfer-Encoding: chunked\r\n");
  }
  if (!shape_.keep_alive || until_close_) {
    buffer_.append("Connection: close\r\n");
  } else if (!shape_.chunkable) {
    buffer_.append("Connection: keep-alive\r\n");
  }
}

void ResponseWriter::Impl::Start(int status, const Headers& headers) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ == nullptr || phase_ != Phase::kFresh) return;
  phase_ = Phase::kStarted;
  AppendHead(status, headers, false);
  buffer_.append("\r\n");
  PostFlush();
}

WriteState ResponseWriter::Impl::Write(std::string_view chunk) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ == nullptr || phase_ != Phase::kStarted) return WriteState::kGone;
  if (!chunk.empty() && !shape_.head_only) {
    if (chunked_) {
      AppendChunk(buffer_, chunk);
    } else {
      buffer_.append(chunk);
    }
    PostFlush();
  }
  const size_t waiting = buffer_.size() + unsent_;
  if (waiting > max_buffered_bytes_) {
    phase_ = Phase::kAborted;  // the flush that is posted will cut it, and tell OnDisconnect
    return WriteState::kGone;
  }
  congested_ = congested_ || waiting > congested_bytes_;
  return congested_ ? WriteState::kCongested : WriteState::kOpen;
}

void ResponseWriter::Impl::Finish() {
  absl::MutexLock lock(&mutex_);
  if (exchange_ == nullptr || phase_ != Phase::kStarted) return;
  if (chunked_ && !shape_.head_only) buffer_.append("0\r\n\r\n");
  FinishLocked();
}

void ResponseWriter::Impl::Reply(int status, const Headers& headers, std::string_view body) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ == nullptr || phase_ != Phase::kFresh) return;
  AppendHead(status, headers, true);
  absl::StrAppend(&buffer_, "Content-Length: ", body.size(), "\r\n\r\n");
  if (!shape_.head_only) buffer_.append(body);
  FinishLocked();
}

void ResponseWriter::Impl::FinishLocked() {
  phase_ = Phase::kFinished;
  on_disconnect_ = nullptr;
  on_drained_ = nullptr;
  PostFlush();
}

void ResponseWriter::Impl::Abort() {
  absl::MutexLock lock(&mutex_);
  if (exchange_ == nullptr || phase_ == Phase::kFinished) return;
  phase_ = Phase::kAborted;
  on_disconnect_ = nullptr;
  on_drained_ = nullptr;
  PostFlush();
}

void ResponseWriter::Impl::Dropped() {
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ == Phase::kFinished || phase_ == Phase::kAborted) return;
    if (phase_ == Phase::kStarted) {
      phase_ = Phase::kAborted;
      on_disconnect_ = nullptr;
      return PostFlush();
    }
  }
  Reply(
      500, {{"Content-Type", "application/json"}},
      R"({"error":{"message":"The request was dropped.","type":"server_error","param":null,"code":"internal_error"}})");
}

void ResponseWriter::Impl::OnDisconnect(std::function<void()> callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (!gone_) {
      if (exchange_ != nullptr && phase_ != Phase::kFinished) on_disconnect_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ResponseWriter::Impl::OnDrained(std::function<void()> callback) {
  absl::MutexLock lock(&mutex_);
  if (exchange_ != nullptr && phase_ != Phase::kFinished) on_drained_ = std::move(callback);
}

bool ResponseWriter::Impl::gone() const {
  absl::MutexLock lock(&mutex_);
  return gone_;
}

// exchange_ is set, so the connection and its loop live: both detach under this lock before they end.
void ResponseWriter::Impl::PostFlush() {
  if (exchange_ == nullptr || flush_posted_) return;
  flush_posted_ = true;
  asio::post(loop_.io(), [self = shared_from_this()] { self->Flush(); });
}

void ResponseWriter::Impl::Flush() {
  std::string bytes;
  ServerExchange* exchange;
  Phase phase;
  {
    absl::MutexLock lock(&mutex_);
    flush_posted_ = false;
    exchange = exchange_;
    phase = phase_;
    bytes.swap(buffer_);
    if (phase == Phase::kFinished) exchange_ = nullptr;
  }
  if (exchange == nullptr) return;
  ServerConnection& connection = exchange->connection();
  const ServerConnection::Pointer alive(&connection);
  if (phase == Phase::kAborted) {
    Detach();
    exchange->End();
    return connection.Abort();
  }
  if (!bytes.empty()) connection.Send(bytes);
  if (phase == Phase::kFinished) {
    exchange->End();
    return connection.FinishResponse(shape_.keep_alive && !until_close_);
  }
  if (connection.unsent_bytes() == 0) return Sent();
  absl::MutexLock lock(&mutex_);
  unsent_ = connection.unsent_bytes();
}

void ResponseWriter::Impl::Sent() {
  std::function<void()> drained;
  {
    absl::MutexLock lock(&mutex_);
    unsent_ = 0;
    if (!congested_ || !buffer_.empty()) return;
    congested_ = false;
    drained = on_drained_;
  }
  if (drained) drained();
}

void ResponseWriter::Impl::Detach() {
  std::function<void()> disconnected;
  {
    absl::MutexLock lock(&mutex_);
    if (exchange_ == nullptr) return;
    exchange_ = nullptr;
    gone_ = true;
    buffer_.clear();
    disconnected = std::move(on_disconnect_);
    on_disconnect_ = nullptr;
    on_drained_ = nullptr;
  }
  if (disconnected) disconnected();
}

ServerExchange::~ServerExchange() { OnGone(); }

void ServerExchange::OnGone() {
  if (const auto writer = std::move(writer_)) writer->Detach();
}

void ServerExchange::OnDrained() {
  if (const auto writer = writer_) writer->Sent();
}

ResponseWriter::ResponseWriter(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResponseWriter::ResponseWriter(ResponseWriter&&) noexcept = default;
ResponseWriter& ResponseWriter::operator=(ResponseWriter&& other) noexcept {
  if (impl_) impl_->Dropped();
  impl_ = std::move(other.impl_);
  return *this;
}
ResponseWriter::~ResponseWriter() {
  if (impl_) impl_->Dropped();
}
void ResponseWriter::Start(int status, const Headers& headers) { impl_->Start(status, headers); }
WriteState ResponseWriter::Write(std::string_view chunk) { return impl_->Write(chunk); }
void ResponseWriter::Finish() { impl_->Finish(); }
void ResponseWriter::Reply(int status, const Headers& headers, std::string_view body) {
  impl_->Reply(status, headers, body);
}
void ResponseWriter::Abort() { impl_->Abort(); }
void ResponseWriter::OnDisconnect(std::function<void()> callback) {
  impl_->OnDisconnect(std::move(callback));
}
void ResponseWriter::OnDrained(std::function<void()> callback) { impl_->OnDrained(std::move(callback)); }
bool ResponseWriter::gone() const { return impl_->gone(); }

}  // namespace kvring::net
