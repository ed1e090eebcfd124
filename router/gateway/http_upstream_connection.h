// Internal to the gateway (shows Asio): one connection to one replica, and the attempt that runs on it.
#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/net/event_loop.h"
#include "common/net/http_parser.h"
#include "router/gateway/http_upstream.h"

namespace kvring::router {

class HttpUpstreamConnection final
    : public boost::intrusive_ref_counter<HttpUpstreamConnection, boost::thread_unsafe_counter>,
      public net::Ticked,
      public Attempt {
 public:
  using Pointer = boost::intrusive_ptr<HttpUpstreamConnection>;

  HttpUpstreamConnection(HttpUpstream& pool, std::shared_ptr<const Endpoint> endpoint);
  ~HttpUpstreamConnection();

  void Run(const UpstreamRequest& request, AnswerSink& sink);
  void Cancel() override { Close(); }
  void Pause() override { paused_ = true; }
  void Resume() override;
  void Close();

  ReplicaId replica() const { return endpoint_->replica; }
  bool healthy_idle() const { return state_ == State::kIdle; }

  size_t index_in_all = 0;

 private:
  enum class State { kIdle, kConnecting, kHead, kBody, kClosed };

  void Open();
  void Resolve();
  void Connect(const net::tcp::endpoint& to);
  void OnConnected(const net::ErrorCode& error);
  void SendRequest();
  void WaitWritable();
  void StartRead();
  void OnRead(const net::ErrorCode& error, size_t bytes);
  void OnReadEnd(bool clean);
  void ReadHead();
  void DeliverHead(const net::ResponseHeadView& view);
  void ReadBody(std::string_view bytes);
  void ReadChunks(std::string_view bytes);
  void Deliver(std::string_view wire, bool between_chunks, bool last);
  void EndAnswer(bool reusable);
  void Fail(OutcomeClass outcome, std::string_view what);
  void FailOrReplay(std::string_view what);
  void MakeRoom();
  void OnTick(Instant now) override;

  HttpUpstream& pool_;
  const std::shared_ptr<const Endpoint> endpoint_;  // shared with the directory and the loops' caches
  net::tcp::socket socket_;
  std::unique_ptr<net::tcp::resolver> resolver_;
  State state_ = State::kClosed;
  Pointer self_;             // while open
  uint64_t generation_ = 0;  // of the socket: handlers of an earlier one are ignored
  bool reading_ = false;
  bool paused_ = false;
  bool reused_ = false;    // this attempt runs on a connection that has served before
  bool any_byte_ = false;  // of this answer
  bool lost_ = false;      // the connection ended under this request, if only a kept one that it met stale
  bool head_reusable_ = false;

  UpstreamRequest request_;
  AnswerSink* sink_ = nullptr;
  size_t sent_ = 0;
  bool sending_ = false;
  Instant deadline_{};
  Duration deadline_kind_{};  // the time-out it came from, for extending it cheaply at each byte

  std::unique_ptr<char[]> in_;
  size_t in_capacity_ = 0;
  size_t in_end_ = 0;
  net::HeadScanner scanner_;
  net::ResponseHeadView head_;
  net::ChunkedDecoder decoder_;
  uint64_t body_left_ = 0;
  std::vector<std::string_view> data_;
};

}  // namespace kvring::router
