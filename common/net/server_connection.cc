#include "common/net/server_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/net/http_fault.h"
#include "common/runtime/clock.h"

namespace kvring::net {
namespace {

constexpr size_t kInitialIn = 16 << 10;
constexpr size_t kMinRoomAfterHead = 4 << 10;
constexpr size_t kKeptBody = 256 << 10;  // larger body strings are freed between requests
constexpr size_t kBodyStep = 256 << 10;  // a declared length is believed only as far as bytes arrive
constexpr size_t kJsonPadding = 64;      // room that JSON parsers want behind a body
constexpr Duration kFreshTime = std::chrono::milliseconds(200);
constexpr Duration kLingerTime = std::chrono::seconds(2);
constexpr uint64_t kLingerBytes = 4 << 20;

std::string PeerName(const tcp::endpoint& peer) {
  const std::string host = peer.address().to_string();
  return peer.address().is_v6() ? absl::StrCat("[", host, "]:", peer.port())
                                : absl::StrCat(host, ":", peer.port());
}

bool IsLoopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

}  // namespace

ServerConnection::ServerConnection(tcp::socket socket, EventLoop& loop, const HttpServerOptions& options,
                                   ServerUser& user)
    : socket_(std::move(socket)),
      loop_(loop),
      options_(options),
      user_(user),
      in_(new char[kInitialIn]),
      in_capacity_(kInitialIn),
      scanner_({.max_bytes = options.max_header_bytes, .max_fields = options.max_headers}) {
  ErrorCode ignored;
  const tcp::endpoint peer = socket_.remote_endpoint(ignored);
  peer_ = PeerName(peer);
  peer_is_loopback_ = IsLoopback(peer.address());
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

ServerConnection::~ServerConnection() = default;

void ServerConnection::Start() {
  self_ = this;
  loop_.Watch(*this);
  deadline_ = Now() + options_.idle_timeout;
  StartRead();
}

void ServerConnection::StartRead() {
  if (reading_ || state_ == State::kClosed) return;
  body_direct_ = state_ == State::kBody && head_.framing == BodyFraming::kLength;
  char* into = body_direct_ ? body_.data() + body_have_ : in_.get() + in_end_;
  const size_t room = body_direct_ ? body_.size() - body_have_ : in_capacity_ - in_end_;
  // A pipelining client is read on after this answer; with nothing ahead, a read is always pending and hears
  // of a FIN.
  const bool answering = state_ == State::kBusy || state_ == State::kFlush;
  if (room == 0 || (answering && in_end_ > begin_ + head_bytes_)) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(into, room),
                          [self = Pointer(this)](const ErrorCode& error, size_t bytes) {
                            self->reading_ = false;
                            self->OnRead(error, bytes);
                          });
}

void ServerConnection::OnRead(const ErrorCode& error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) {
    if (state_ == State::kBusy) return Cut();
    return Close();
  }
  if (state_ == State::kLinger) {
    linger_bytes_ += bytes;
    return linger_bytes_ > kLingerBytes ? Close() : StartRead();
  }
  (body_direct_ ? body_have_ : in_end_) += bytes;
  if (state_ == State::kBusy || state_ == State::kFlush) return;
  if (begin_ > kMinRoomAfterHead) MoveToFront();
  Process();
}

void ServerConnection::Process() {
  if (processing_) return;  // an answer given inside OnRequest: the loop below goes on with the next request
  const Pointer alive(this);
  processing_ = true;
  while (Step()) {
  }
  processing_ = false;
  if (state_ != State::kClosed) StartRead();
}

// One state further; false: wait for bytes, for the answer, or for nothing any more.
bool ServerConnection::Step() {
  switch (state_) {
    case State::kIdle:
      if (in_end_ == begin_) return false;
      idle_hook.unlink();
      deadline_ = Now() + options_.header_timeout;
      state_ = State::kHead;
      return true;
    case State::kHead:
      return ReadHead();
    case State::kBody:
      return ReadBody();
    default:
      return false;
  }
}

bool ServerConnection::ReadHead() {
  switch (scanner_.Scan(Unread())) {
    case HeadScanner::State::kFault:
      return Fault(scanner_.fault());
    case HeadScanner::State::kIncomplete:
      if (in_end_ == in_capacity_) MakeRoom();
      return false;
    case HeadScanner::State::kComplete:
      break;
  }
  head_bytes_ = scanner_.head_bytes();
  if (in_capacity_ - begin_ - head_bytes_ < kMinRoomAfterHead) MakeRoom();
  if (const HttpFault fault = ParseRequestHead(Unread().substr(0, head_bytes_), head_)) return Fault(fault);
  return BeginBody();
}

bool ServerConnection::BeginBody() {
  if (head_.framing == BodyFraming::kLength && head_.content_length > options_.max_body_bytes) {
    return Fault({413, "The request body is too large."});
  }
  state_ = State::kBody;
  deadline_ = {};
  body_started_ = Now();
  body_have_ = 0;
  char* rest = in_.get() + begin_ + head_bytes_;
  const size_t present = Unread().size() - head_bytes_;
  if (head_.framing == BodyFraming::kLength) {
    const size_t length = head_.content_length;
    const size_t taken = std::min(present, length);
    const size_t believed = std::min(length, std::max(taken, kBodyStep));
    body_.reserve(believed + kJsonPadding);
    body_.assign(rest, taken);
    body_.resize(believed);
    body_have_ = taken;
    std::memmove(rest, rest + taken, present - taken);
    in_end_ -= taken;
  } else {
    body_.clear();
  }
  const bool whole = head_.framing == BodyFraming::kNone ||
                     (head_.framing == BodyFraming::kLength && body_have_ == head_.content_length);
  if (head_.expects_continue && !whole && present == 0) Send("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

bool ServerConnection::ReadBody() {
  if (head_.framing == BodyFraming::kLength) {
    if (body_have_ < head_.content_length) {
      if (body_have_ == body_.size()) body_.resize(std::min<size_t>(head_.content_length, body_.size() * 2));
      return false;
    }
  } else if (head_.framing == BodyFraming::kChunked && !ReadChunkedBody()) {
    return false;
  }
  state_ = State::kBusy;
  deadline_ = {};
  ++serial_;
  user_.OnRequest(*this);
  return true;
}

// True when the last chunk has come.
bool ServerConnection::ReadChunkedBody() {
  char* rest = in_.get() + begin_ + head_bytes_;
  std::string_view input = Unread().substr(head_bytes_);
  std::string_view data;
  while (true) {
    switch (decoder_.Next(input, data)) {
      case ChunkedDecoder::Step::kData:
        if (body_.size() + data.size() > options_.max_body_bytes)
          return Fault({413, "The request body is too large."});
        body_.append(data);
        break;
      case ChunkedDecoder::Step::kFault:
        return Fault({400, "The chunked request body is malformed."});
      case ChunkedDecoder::Step::kNeedMore:
      case ChunkedDecoder::Step::kDone:
        std::memmove(rest, input.data(), input.size());
        in_end_ = begin_ + head_bytes_ + input.size();
        body_have_ = body_.size();
        return decoder_.done();
    }
  }
}

void ServerConnection::MoveToFront() {
  std::memmove(in_.get(), in_.get() + begin_, in_end_ - begin_);
  in_end_ -= begin_;
  begin_ = 0;
}

// Room behind what is there; called only while no read is pending and no view is in use.
void ServerConnection::MakeRoom() {
  if (begin_ > 0) MoveToFront();
  if (in_capacity_ - in_end_ >= kMinRoomAfterHead) return;
  const size_t capacity = in_capacity_ * 2;
  std::unique_ptr<char[]> larger(new char[capacity]);
  std::memcpy(larger.get(), in_.get(), in_end_);
  in_ = std::move(larger);
  in_capacity_ = capacity;
}

// Answers for the request that cannot be read, and closes: where the next one would start is not known.
bool ServerConnection::Fault(const HttpFault& fault) {
  close_after_ = unread_request_ = true;
  state_ = State::kBusy;
  ++serial_;
  Reply(fault.status, "application/json", "", FaultBody(fault));
  return false;
}

void ServerConnection::Send(std::span<const std::string_view> pieces) {
  if (state_ == State::kClosed) return;
  size_t sent = 0;
  if (unsent_bytes() == 0) {
    std::array<iovec, 8> parts;
    const size_t count = std::min(pieces.size(), parts.size());
    for (size_t i = 0; i < count; ++i) parts[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return Broken();
    sent = n > 0 ? static_cast<size_t>(n) : 0;
  }
  for (const std::string_view piece : pieces) {
    const size_t skip = std::min(sent, piece.size());
    sent -= skip;
    out_.append(piece.substr(skip));
  }
  if (unsent_bytes() > 0) WaitWritable();
}

// The owner may be in the middle of something: it hears of it in a call of its own.
void ServerConnection::Broken() {
  asio::post(loop_.io(), [self = Pointer(this), serial = serial_] {
    if (self->serial_ != serial || self->state_ == State::kClosed) return;
    self->Cut();
  });
}

void ServerConnection::WaitWritable() {
  if (waiting_writable_) return;
  waiting_writable_ = true;
  socket_.async_wait(tcp::socket::wait_write, [self = Pointer(this)](const ErrorCode& error) {
    self->waiting_writable_ = false;
    if (self->state_ == State::kClosed) return;
    if (error) return self->Cut();
    self->SendPending();
  });
}

void ServerConnection::SendPending() {
  const ssize_t n =
      ::send(socket_.native_handle(), out_.data() + out_sent_, unsent_bytes(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return Cut();
  out_sent_ += n > 0 ? static_cast<size_t>(n) : 0;
  if (unsent_bytes() > 0) return WaitWritable();
  out_.clear();
  out_sent_ = 0;
  if (out_.capacity() > kKeptBody) std::string().swap(out_);
  if (state_ == State::kFlush) return OnFlushed();
  if (state_ == State::kBusy && owner) owner->OnDrained();
}

void ServerConnection::FinishResponse(bool keep_alive) {
  if (state_ == State::kClosed) return;
  const Pointer self(this);  // the next pipelined request may be answered, and the connection closed, inside
  state_ = State::kFlush;
  close_after_ = close_after_ || !keep_alive;
  if (unsent_bytes() == 0) OnFlushed();
  if (state_ == State::kFlush) deadline_ = Now() + options_.idle_timeout;
}

void ServerConnection::OnFlushed() {
  if (close_after_) return unread_request_ || in_end_ > begin_ + head_bytes_ ? Linger() : Close();
  ResetForNext();
  Process();
}

void ServerConnection::ResetForNext() {
  begin_ += head_bytes_;
  head_bytes_ = 0;
  if (!reading_) MoveToFront();  // else nothing is there, and the pending read will write at in_end_
  scanner_.Reset();
  head_ = {};  // its views end here
  decoder_ = {};
  if (body_.capacity() > kKeptBody) std::string().swap(body_);
  state_ = State::kIdle;
  deadline_ = Now() + options_.idle_timeout;
  if (on_idle) on_idle(*this);
}

void ServerConnection::Reply(int status, std::string_view content_type, std::string_view extra_lines,
                             std::string_view body) {
  const bool keep = keep_alive();
  std::string head = absl::StrCat(
      "HTTP/1.1 ", status, " ", Absl(ReasonPhrase(status)), "\r\nContent-Type: ", Absl(content_type),
      "\r\nContent-Length: ", body.size(), keep ? "\r\n" : "\r\nConnection: close\r\n");
  head.append(extra_lines).append("\r\n");
  const std::string_view pieces[] = {head, head_.method == "HEAD" ? std::string_view() : body};
  Send(pieces);
  FinishResponse(keep);
}

// After an answer to a request that was not read to its end: sends FIN and reads on for a moment, since
// closing with unread bytes would send RST, and the client would lose the answer.
void ServerConnection::Linger() {
  state_ = State::kLinger;
  deadline_ = Now() + kLingerTime;
  ErrorCode ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (!reading_) begin_ = in_end_ = 0;
  linger_bytes_ = 0;
  StartRead();
}

void ServerConnection::Abort() { Close(); }

void ServerConnection::Cut() {
  if (state_ == State::kClosed) return;
  const Pointer alive(this);
  const bool busy = state_ == State::kBusy;
  Close();
  if (busy && owner) owner->OnGone();
}

void ServerConnection::CloseSoon() {
  close_after_ = true;
  if (state_ != State::kIdle) return;
  ErrorCode ignored;
  if (serial_ > 0 && socket_.available(ignored) == 0) return Close();
  // Its request is here, or on its way: who has just connected did so to ask something.
  deadline_ = std::min(deadline_, Now() + kFreshTime);
}

void ServerConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  ErrorCode ignored;
  socket_.close(ignored);
  Ticked::unlink();
  all_hook.unlink();
  idle_hook.unlink();
  const Pointer last = std::move(self_);
  if (on_closed) on_closed();
}

void ServerConnection::OnTick(Instant now) {
  if (state_ == State::kBody && now - body_started_ > options_.header_timeout) {
    const double seconds = ToSeconds(now - body_started_);
    if (static_cast<double>(body_have_) < options_.body_min_bytes_per_second * seconds) {
      Fault({408, "The request body comes too slowly."});
    }
    return;
  }
  if (deadline_ == Instant{} || now < deadline_) return;
  if (state_ == State::kHead) {
    Fault({408, "The request header did not come in time."});
  } else {
    Close();
  }
}

}  // namespace kvring::net
