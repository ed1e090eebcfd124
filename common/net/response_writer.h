// Internal to common/net (shows Asio): both sides of a ResponseWriter. The writer's side may be called from
// any thread; it frames bytes into a buffer and posts a flush to the connection's loop, at most one at a
// time. The loop's side (ServerExchange) lives in the connection and is told apart from the writer by
// `Detach` when either ends first.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/net/server_connection.h"

namespace kvring::net {

class ServerExchange;

class ResponseWriter::Impl : public std::enable_shared_from_this<ResponseWriter::Impl> {
 public:
  struct Shape {
    bool head_only = false;  // answer to HEAD
    bool chunkable = true;   // HTTP/1.1
    bool keep_alive = true;
  };
  Impl(ServerExchange& exchange, EventLoop& loop, const HttpServerOptions& options, Shape shape);

  // Any thread.
  void Start(int status, const Headers& headers);
  WriteState Write(std::string_view chunk);
  void Finish();
  void Reply(int status, const Headers& headers, std::string_view body);
  void Abort();
  void Dropped();
  void OnDisconnect(std::function<void()> callback);
  void OnDrained(std::function<void()> callback);
  bool gone() const;

  // Loop thread.
  void Flush();
  /// Everything sent has left the socket's queue.
  void Sent();
  /// The client or the server is gone.
  void Detach();

 private:
  enum class Phase { kFresh, kStarted, kFinished, kAborted };
  void AppendHead(int status, const Headers& headers, bool whole) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostFlush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventLoop& loop_;  // only used while exchange_ is set
  const size_t congested_bytes_;
  const size_t max_buffered_bytes_;
  const Shape shape_;

  mutable absl::Mutex mutex_;
  ServerExchange* exchange_ ABSL_GUARDED_BY(mutex_);  // null once finished, aborted or gone
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kFresh;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool chunked_ ABSL_GUARDED_BY(mutex_) = false;
  bool until_close_ ABSL_GUARDED_BY(mutex_) = false;
  bool flush_posted_ ABSL_GUARDED_BY(mutex_) = false;
  bool congested_ ABSL_GUARDED_BY(mutex_) = false;
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that the connection holds
  std::function<void()> on_disconnect_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_drained_ ABSL_GUARDED_BY(mutex_);
};

/// The loop's side: one per connection, reused for its requests.
class ServerExchange final : public RequestOwner {
 public:
  explicit ServerExchange(ServerConnection& connection) : connection_(connection) {}
  ~ServerExchange() override;

  void Begin(std::shared_ptr<ResponseWriter::Impl> writer) { writer_ = std::move(writer); }
  ServerConnection& connection() { return connection_; }
  /// The answer of this writer is over.
  void End() { writer_.reset(); }

 private:
  void OnGone() override;
  void OnDrained() override;

  ServerConnection& connection_;
  std::shared_ptr<ResponseWriter::Impl> writer_;  // shared with the handler's ResponseWriter
};

}  // namespace kvring::net
