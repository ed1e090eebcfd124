// Internal to the shells (shows Asio): one client connection of a server, on one loop thread. Reads requests
// one at a time (head, then the whole body), hands each to the ServerUser, sends what it is given, notices
// when the client leaves while a request runs. Limits and time-outs are answered here, so that router and
// replica behave alike.
//
// Life of a request: ServerUser::OnRequest -> Send… -> FinishResponse | Abort. The request's views stay valid
// until then. While it runs, RequestOwner hears of a client that left (then the request is over) and of
// drained sends.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <memory>
#include <span>
#include <string>

#include "common/net/event_loop.h"
#include "common/net/http_parser.h"
#include "common/net/http_server.h"

namespace kvring::net {

class ServerConnection;

/// Who handles the requests of one loop.
class ServerUser {
 public:
  virtual void OnRequest(ServerConnection& connection) = 0;
  /// Whether requests may be taken on this connection after the present one.
  virtual bool keep_alive() const = 0;

 protected:
  ~ServerUser() = default;
};

/// Who owns the running request of one connection. Kept in the connection, reused from request to request.
class RequestOwner {
 public:
  virtual ~RequestOwner() = default;
  /// The client is gone; the request is over for the connection.
  virtual void OnGone() = 0;
  /// All that was sent has left.
  virtual void OnDrained() = 0;
};

using ConnectionHook =
    boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

class ServerConnection final
    : public boost::intrusive_ref_counter<ServerConnection, boost::thread_unsafe_counter>,
      public Ticked {
 public:
  using Pointer = boost::intrusive_ptr<ServerConnection>;

  ServerConnection(tcp::socket socket, EventLoop& loop, const HttpServerOptions& options, ServerUser& user);
  ~ServerConnection();
  void Start();

  // The running request.
  const RequestHeadView& head() const { return head_; }
  std::string& body() { return body_; }
  EventLoop& loop() { return loop_; }
  const std::string& peer() const { return peer_; }
  bool peer_is_loopback() const { return peer_is_loopback_; }
  /// Frees the body's memory, once it is not needed any more.
  void ReleaseBody() { std::string().swap(body_); }

  /// Whether the answer may promise to keep the connection.
  bool keep_alive() const { return head_.keep_alive && user_.keep_alive() && !close_after_; }
  /// Sends the pieces in order; what the socket does not take is copied and sent later. On a broken
  /// connection OnGone follows.
  void Send(std::span<const std::string_view> pieces);
  void Send(std::string_view piece) { Send(std::span(&piece, 1)); }
  size_t unsent_bytes() const { return out_.size() - out_sent_; }
  /// The answer is complete.
  void FinishResponse(bool keep_alive);
  /// Cuts the connection. The owner hears nothing more.
  void Abort();
  /// A whole JSON answer of the server's own, with extra header lines ("name: value\r\n"…).
  void Reply(int status, std::string_view content_type, std::string_view extra_lines, std::string_view body);

  bool idle() const { return state_ == State::kIdle; }
  bool open() const { return state_ != State::kClosed; }
  /// Closes it when idle, after the present answer otherwise.
  void CloseSoon();
  /// Closes it now; a running request's owner hears OnGone.
  void Cut();

  std::unique_ptr<RequestOwner> owner;
  ConnectionHook all_hook;
  ConnectionHook idle_hook;
  std::function<void()> on_closed;
  std::function<void(ServerConnection&)> on_idle;

 private:
  enum class State { kIdle, kHead, kBody, kBusy, kFlush, kLinger, kClosed };

  void StartRead();
  void OnRead(const ErrorCode& error, size_t bytes);
  void Process();
  bool Step();
  bool ReadHead();
  bool BeginBody();
  bool ReadBody();
  bool ReadChunkedBody();
  void ResetForNext();
  bool Fault(const HttpFault& fault);
  void SendPending();
  void WaitWritable();
  void OnFlushed();
  void Broken();
  void Linger();
  void Close();
  std::string_view Unread() const { return {in_.get() + begin_, in_end_ - begin_}; }
  void MoveToFront();
  void MakeRoom();
  void OnTick(Instant now) override;

  tcp::socket socket_;
  EventLoop& loop_;
  const HttpServerOptions& options_;
  ServerUser& user_;
  std::string peer_;
  bool peer_is_loopback_ = false;

  State state_ = State::kIdle;
  Pointer self_;  // while open
  bool reading_ = false;
  bool waiting_writable_ = false;
  bool processing_ = false;
  bool close_after_ = false;
  bool unread_request_ = false;
  bool body_direct_ = false;  // the pending read fills body_, not in_
  uint64_t serial_ = 0;       // of requests; late news of an earlier one are dropped

  // in_: [begin_, begin_ + head_bytes_) the head, up to in_end_ what came after it. A length-delimited body
  // goes to body_ without a stop here. While an answer runs, a read is pending only if nothing came after the
  // request.
  std::unique_ptr<char[]> in_;
  size_t in_capacity_ = 0;
  size_t begin_ = 0;
  size_t in_end_ = 0;
  size_t head_bytes_ = 0;
  HeadScanner scanner_;
  RequestHeadView head_;
  ChunkedDecoder decoder_;
  std::string body_;
  size_t body_have_ = 0;

  std::string out_;
  size_t out_sent_ = 0;
  Instant deadline_{};  // {}: none
  Instant body_started_{};
  uint64_t linger_bytes_ = 0;
};

}  // namespace kvring::net
