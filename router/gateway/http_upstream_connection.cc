#include "router/gateway/http_upstream_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "common/runtime/clock.h"

namespace kvring::router {
namespace {

namespace asio = net::asio;
using net::BodyFraming;
using net::ErrorCode;
using net::tcp;

constexpr size_t kReadBytes = 16 << 10;
constexpr Duration kIdleKept = std::chrono::seconds(55);

}  // namespace

HttpUpstreamConnection::HttpUpstreamConnection(HttpUpstream& pool, std::shared_ptr<const Endpoint> endpoint)
    : pool_(pool),
      endpoint_(std::move(endpoint)),
      socket_(pool.loop_.io()),
      in_(new char[kReadBytes]),
      in_capacity_(kReadBytes) {}

HttpUpstreamConnection::~HttpUpstreamConnection() = default;

void HttpUpstreamConnection::Run(const UpstreamRequest& request, AnswerSink& sink) {
  request_ = request;
  sink_ = &sink;
  sent_ = 0;
  any_byte_ = lost_ = false;
  paused_ = false;
  reused_ = state_ == State::kIdle;
  scanner_.Reset();
  decoder_ = {};
  if (!reused_) return Open();
  state_ = State::kHead;
  SendRequest();
}

// Also for a replay: the object stays, the socket is new.
void HttpUpstreamConnection::Open() {
  ErrorCode ignored;
  socket_.close(ignored);
  ++generation_;
  if (!self_) {
    self_ = this;
    pool_.loop_.Watch(*this);
  }
  state_ = State::kConnecting;
  reading_ = sending_ = false;
  sent_ = in_end_ = 0;
  deadline_ = Now() + pool_.timeouts_.connect;
  pool_.counters_.opened.fetch_add(1, std::memory_order_relaxed);
  const auto ip = asio::ip::make_address(endpoint_->url.address.host, ignored);
  if (ignored) return Resolve();
  Connect(tcp::endpoint(ip, endpoint_->url.address.port));
}

void HttpUpstreamConnection::Resolve() {
  resolver_ = std::make_unique<tcp::resolver>(pool_.loop_.io());
  const net::Address& address = endpoint_->url.address;
  resolver_->async_resolve(
      address.host, std::to_string(address.port),
      [self = Pointer(this), generation = generation_](const ErrorCode& error, const auto& results) {
        if (self->generation_ != generation || self->state_ != State::kConnecting) return;
        if (error || results.empty()) return self->Fail(OutcomeClass::kReplicaError, "name not resolved");
        self->Connect(results.begin()->endpoint());
      });
}

void HttpUpstreamConnection::Connect(const tcp::endpoint& to) {
  socket_.async_connect(to, [self = Pointer(this), generation = generation_](const ErrorCode& error) {
    if (self->generation_ != generation || self->state_ != State::kConnecting) return;
    self->OnConnected(error);
  });
}

void HttpUpstreamConnection::OnConnected(const ErrorCode& error) {
  if (error) {
    return Fail(OutcomeClass::kReplicaError,
                error == asio::error::connection_refused ? "connection refused" : "connection failed");
  }
  ErrorCode ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  state_ = State::kHead;
  StartRead();
  SendRequest();
}

// Head and body go out together; what the socket does not take waits where it is.
void HttpUpstreamConnection::SendRequest() {
  deadline_kind_ = request_.first_byte.count() > 0 ? request_.first_byte : pool_.timeouts_.first_byte;
  deadline_ = Now() + deadline_kind_;
  const size_t head_bytes = request_.head.size();
  const size_t total = head_bytes + request_.body.size();
  sending_ = true;
  while (sent_ < total) {
    iovec parts[2];
    int count = 0;
    if (sent_ < head_bytes)
      parts[count++] = {const_cast<char*>(request_.head.data()) + sent_, head_bytes - sent_};
    const size_t body_sent = sent_ > head_bytes ? sent_ - head_bytes : 0;
    if (body_sent < request_.body.size()) {
      parts[count++] = {const_cast<char*>(request_.body.data()) + body_sent,
                        request_.body.size() - body_sent};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return WaitWritable();
    if (n < 0 && errno != EINTR) {
      // Its answer may be there already (an early 4xx): the pending read decides. Nothing more is sent.
      sending_ = false;
      return;
    }
    if (n > 0) sent_ += static_cast<size_t>(n);
  }
  sending_ = false;
}

void HttpUpstreamConnection::WaitWritable() {
  socket_.async_wait(tcp::socket::wait_write,
                     [self = Pointer(this), generation = generation_](const ErrorCode& error) {
                       // An answer that came before the request was out ended the sending: its views may be
                       // gone.
                       if (error || self->generation_ != generation || self->state_ != State::kHead ||
                           !self->sending_ || self->any_byte_)
                         return;
                       self->SendRequest();
                     });
}

void HttpUpstreamConnection::StartRead() {
  if (reading_ || paused_ || state_ == State::kClosed) return;
  reading_ = true;
  socket_.async_read_some(
      asio::buffer(in_.get() + in_end_, in_capacity_ - in_end_),
      [self = Pointer(this), generation = generation_](const ErrorCode& error, size_t bytes) {
        if (self->generation_ != generation || self->state_ == State::kClosed) return;
        self->reading_ = false;
        self->OnRead(error, bytes);
      });
}

void HttpUpstreamConnection::OnRead(const ErrorCode& error, size_t bytes) {
  const Pointer alive(this);
  if (error) return OnReadEnd(error == asio::error::eof);
  if (state_ == State::kIdle) return Close();  // bytes that nobody asked for
  any_byte_ = true;
  in_end_ += bytes;
  if (deadline_kind_ != pool_.timeouts_.idle) deadline_kind_ = pool_.timeouts_.idle;
  deadline_ = {};  // set again at the next tick: a clock reading per minute, not per byte
  const uint64_t generation = generation_;
  if (state_ == State::kHead) {
    ReadHead();
  } else {
    const size_t n = std::exchange(in_end_, 0);
    ReadBody({in_.get(), n});
  }
  if (generation == generation_) StartRead();
}

void HttpUpstreamConnection::OnReadEnd(bool clean) {
  if (state_ == State::kIdle) return Close();
  if (state_ == State::kBody && head_.framing == BodyFraming::kUntilClose && clean) return EndAnswer(false);
  FailOrReplay(clean ? "closed before the end of the answer" : "reset before the end of the answer");
}

void HttpUpstreamConnection::FailOrReplay(std::string_view what) {
  lost_ = true;
  if (!reused_ || any_byte_) return Fail(OutcomeClass::kReplicaError, what);
  reused_ = false;
  pool_.counters_.stale_replays.fetch_add(1, std::memory_order_relaxed);
  scanner_.Reset();
  Open();
}

void HttpUpstreamConnection::ReadHead() {
  while (state_ == State::kHead) {
    switch (scanner_.Scan({in_.get(), in_end_})) {
      case net::HeadScanner::State::kFault:
        return Fail(OutcomeClass::kReplicaError, scanner_.fault().message);
      case net::HeadScanner::State::kIncomplete:
        return MakeRoom();
      case net::HeadScanner::State::kComplete:
        break;
    }
    const size_t head_bytes = scanner_.head_bytes();
    const std::string_view head(in_.get(), head_bytes);
    if (const net::HttpFault fault = net::ParseResponseHead(head, request_.to_head_request, head_)) {
      return Fail(OutcomeClass::kReplicaError, fault.message);
    }
    if (head_.status == 101) return Fail(OutcomeClass::kReplicaError, "switched protocols unasked");
    if (head_.status < 200) {  // an interim answer; the real one follows
      std::memmove(in_.get(), in_.get() + head_bytes, in_end_ - head_bytes);
      in_end_ -= head_bytes;
      scanner_.Reset();
      continue;
    }
    const std::string_view rest(in_.get() + head_bytes, std::exchange(in_end_, 0) - head_bytes);
    const uint64_t generation = generation_;
    DeliverHead(head_);
    if (generation != generation_ || state_ != State::kBody) return;
    // With the head came the start of the body, mostly all of it. Nothing is read meanwhile, so `rest` stays.
    return ReadBody(rest);
  }
}

void HttpUpstreamConnection::MakeRoom() {
  if (in_end_ < in_capacity_) return;
  std::unique_ptr<char[]> larger(new char[in_capacity_ * 2]);
  std::memcpy(larger.get(), in_.get(), in_end_);
  in_ = std::move(larger);
  in_capacity_ *= 2;
}

void HttpUpstreamConnection::DeliverHead(const net::ResponseHeadView& view) {
  state_ = State::kBody;
  body_left_ = view.content_length;
  head_reusable_ = view.keep_alive && !sending_ && sent_ == request_.head.size() + request_.body.size();
  constexpr auto framing_of = [](BodyFraming framing) {
    switch (framing) {
      case BodyFraming::kNone:
        return AnswerFraming::kNone;
      case BodyFraming::kLength:
        return AnswerFraming::kLength;
      case BodyFraming::kChunked:
        return AnswerFraming::kChunkedWire;
      default:
        return AnswerFraming::kPlain;
    }
  };
  sink_->OnHead({.status = view.status,
                 .reason = view.reason,
                 .fields = view.fields,
                 .framing = framing_of(view.framing)});
}

void HttpUpstreamConnection::ReadBody(std::string_view bytes) {
  switch (head_.framing) {
    case BodyFraming::kNone:
      return EndAnswer(head_reusable_ && bytes.empty());
    case BodyFraming::kChunked:
      return ReadChunks(bytes);
    case BodyFraming::kUntilClose:
      data_.assign(1, bytes);
      return Deliver(bytes, true, false);
    case BodyFraming::kLength:
      break;
  }
  const std::string_view body = bytes.substr(0, body_left_);
  body_left_ -= body.size();
  data_.assign(1, body);
  const uint64_t generation = generation_;
  Deliver(body, false, body_left_ == 0);
  if (generation == generation_ && state_ == State::kBody && body_left_ == 0)
    EndAnswer(head_reusable_ && body.size() == bytes.size());
}

// Only what decodes is passed on: a broken chunk's bytes do not reach the client.
void HttpUpstreamConnection::ReadChunks(std::string_view bytes) {
  data_.clear();
  std::string_view input = bytes;
  std::string_view data;
  net::ChunkedDecoder::Step step;
  while ((step = decoder_.Next(input, data)) == net::ChunkedDecoder::Step::kData) data_.push_back(data);
  const bool done = step == net::ChunkedDecoder::Step::kDone;
  const uint64_t generation = generation_;
  if (step != net::ChunkedDecoder::Step::kFault)
    Deliver(bytes.substr(0, bytes.size() - input.size()), decoder_.between_chunks(), done);
  if (generation != generation_ || state_ != State::kBody) return;
  if (step == net::ChunkedDecoder::Step::kFault)
    return Fail(OutcomeClass::kReplicaError, "broken chunk framing");
  if (done) EndAnswer(head_reusable_ && input.empty());
}

void HttpUpstreamConnection::Deliver(std::string_view wire, bool between_chunks, bool last) {
  if (wire.empty()) return;
  sink_->OnBody({.wire = wire, .data = data_, .between_chunks = between_chunks, .last = last});
}

// First into the pool, then the news: the sink may start its next attempt on this very connection.
void HttpUpstreamConnection::EndAnswer(bool reusable) {
  AnswerSink* sink = std::exchange(sink_, nullptr);
  request_ = {};
  if (reusable && !endpoint_->removed.load(std::memory_order_relaxed)) {
    state_ = State::kIdle;
    paused_ = false;
    in_end_ = 0;
    deadline_kind_ = kIdleKept;
    deadline_ = {};
    pool_.Keep(*this);  // OnRead, in which this runs, starts the read that hears of its end
  } else {
    Close();
  }
  sink->OnEnd(std::nullopt);
}

void HttpUpstreamConnection::Fail(OutcomeClass outcome, std::string_view what) {
  AnswerSink* sink = std::exchange(sink_, nullptr);
  const Pointer alive(this);
  Close();
  const bool lost = lost_ || outcome == OutcomeClass::kTimeout;
  if (sink != nullptr) sink->OnFailed({.outcome = outcome, .what = what, .lost = lost});
}

void HttpUpstreamConnection::Resume() {
  paused_ = false;
  StartRead();
}

void HttpUpstreamConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  ++generation_;
  sink_ = nullptr;
  request_ = {};
  ErrorCode ignored;
  socket_.close(ignored);
  if (resolver_) resolver_->cancel();
  Ticked::unlink();
  pool_.Forget(*this);
  const Pointer last = std::move(self_);
}

void HttpUpstreamConnection::OnTick(Instant now) {
  const bool waiting = state_ == State::kConnecting || state_ == State::kHead;
  if (waiting && !any_byte_ && !request_.probe && endpoint_->down.load(std::memory_order_relaxed)) {
    return Fail(OutcomeClass::kTimeout, "probes of the replica fail");
  }
  if (deadline_ == Instant{}) {
    deadline_ = now + deadline_kind_;
    return;
  }
  if (now < deadline_ || paused_) return;
  switch (state_) {
    case State::kIdle:
      return Close();
    case State::kConnecting:
      return Fail(OutcomeClass::kReplicaError, "connection timed out");
    case State::kHead:
      return Fail(OutcomeClass::kTimeout, "no first byte in time");
    default:
      return Fail(OutcomeClass::kTimeout, "the answer stalled");
  }
}

}  // namespace kvring::router
