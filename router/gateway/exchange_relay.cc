// Exchange: the answer on its way to the client.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/canonical_prompt.h"
#include "common/openai/response_writer.h"
#include "common/runtime/clock.h"
#include "router/gateway/exchange.h"

namespace kvring::router {
namespace {

const net::HeaderField* Find(std::span<const net::HeaderField> fields, std::string_view name) {
  for (const net::HeaderField& field : fields) {
    if (net::EqualIgnoringCase(field.name, name)) return &field;
  }
  return nullptr;
}

Duration RetryAfter(std::span<const net::HeaderField> fields) {
  const net::HeaderField* field = Find(fields, "retry-after");
  uint64_t seconds = 0;
  if (field == nullptr || !net::ParseContentLength(field->value, seconds)) return {};
  return std::chrono::seconds(std::min<uint64_t>(seconds, 3600));
}

// 429 and 503 mean busy, other 5xx that the replica failed; 501 is about the request. The rest are answers.
OutcomeClass OutcomeOfStatus(int status) {
  if (status == 429 || status == 503) return OutcomeClass::kBackpressure;
  if (status >= 500 && status != 501) return OutcomeClass::kReplicaError;
  return status >= 400 ? OutcomeClass::kClientError : OutcomeClass::kOk;
}

}  // namespace

void Exchange::OnAdmitted(const AdmittedReport& report) {
  loop_.shared().guard.With([&](Router& router) { router.OnAdmitted(id_, report, Now()); });
}

void Exchange::OnHead(const AnswerHead& head) {
  status_ = head.status;
  const OutcomeClass outcome = OutcomeOfStatus(head.status);
  if (outcome == OutcomeClass::kBackpressure || outcome == OutcomeClass::kReplicaError) {
    Attempt* failed = attempt_;
    if (TryElsewhere({.outcome = outcome, .retry_after = RetryAfter(head.fields)})) {
      failed->Cancel();
      attempt_ = nullptr;
      return Proceed();
    }
  }
  ShapeAnswer(head);
  AppendAnswerHead(answer_head_, head, shape_, OwnLines());
}

void Exchange::ShapeAnswer(const AnswerHead& head) {
  const bool old = client_.head().minor_version == 0;
  const bool unknown_length =
      head.framing == AnswerFraming::kChunkedWire || head.framing == AnswerFraming::kPlain;
  shape_ = {.chunk_to_client = unknown_length && !old,
            .event_stream = IsEventStream(head.fields),
            .keep_alive = client_.keep_alive() && !(unknown_length && old),
            .http10 = old};
  relay_wire_ =
      head.framing == AnswerFraming::kLength || (head.framing == AnswerFraming::kChunkedWire && !old);
  const net::HeaderField* coding = Find(head.fields, "content-encoding");
  const bool plain = coding == nullptr || net::EqualIgnoringCase(coding->value, "identity");
  scan_ = plain && head.status < 300 && (shape_.event_stream || route_ != GenerationRoute::kNone);
  if (!scan_) return;
  scanner_.Begin(shape_.event_stream);
  // Engines behind gRPC tell the text beside the bytes.
  const bool collects = has_prompt_ && prompt_.unit == PromptUnit::kBytes && openai_.n == 1;
  if (collects && endpoint_->url.scheme == "http")
    scanner_.CollectText(route_ == GenerationRoute::kChat ? kChatAnswerStart : std::string_view());
}

void Exchange::OnBody(const AnswerBytes& bytes) {
  if (scan_) scanner_.Feed(bytes.data);
  if (!first_byte_ && shape_.event_stream && !bytes.data.empty()) FirstByte();
  if (bytes.last) {
    last_bytes_ = bytes;
    return;
  }
  Relay(bytes);
  may_insert_ = shape_.chunk_to_client && (bytes.between_chunks || !relay_wire_);
  if (client_.unsent_bytes() > 0 && attempt_ != nullptr) {
    paused_ = true;
    attempt_->Pause();
  }
}

void Exchange::FirstByte() {
  first_byte_ = true;
  const Instant now = Now();
  loop_.shared().guard.With([&](Router& router) { router.OnFirstToken(id_, now); });
  loop_.shared().metrics.ttft.Observe(ToSeconds(now - started_));
  // The replica has all of the request, and a retry is out of question.
  client_.ReleaseBody();
  if (loop_.shared().options.heartbeat > Duration(0)) {
    last_sent_ = now;
    loop_.loop().Watch(*this);
  }
}

void Exchange::Relay(const AnswerBytes& bytes) {
  const std::string_view head = head_sent_ ? std::string_view() : std::string_view(answer_head_);
  head_sent_ = true;
  last_sent_ = {};
  if (relay_wire_) {
    const std::string_view pieces[] = {head, bytes.wire};
    return client_.Send(pieces);
  }
  if (!head.empty()) client_.Send(head);
  if (shape_.chunk_to_client) return RelayChunked(bytes.data);
  for (const std::string_view piece : bytes.data) client_.Send(piece);
}

void Exchange::RelayChunked(std::span<const std::string_view> data) {
  for (const std::string_view piece : data) {
    if (piece.empty()) continue;
    const std::string size = absl::StrCat(absl::Hex(piece.size()), "\r\n");
    const std::string_view pieces[] = {size, piece, "\r\n"};
    client_.Send(pieces);
  }
}

OutcomeClass Exchange::OutcomeOfAnswer() const {
  return scan_ && scanner_.error_seen() ? OutcomeClass::kStreamError : OutcomeOfStatus(status_);
}

void Exchange::OnEnd(const std::optional<UsageReport>& usage) {
  attempt_ = nullptr;
  usage_told_ = usage;
  Complete(OutcomeOfAnswer());
  if (last_bytes_) Relay(*std::exchange(last_bytes_, std::nullopt));
  if (!head_sent_) client_.Send(answer_head_);
  if (shape_.chunk_to_client && !relay_wire_) client_.Send("0\r\n\r\n");
  client_.FinishResponse(shape_.keep_alive);  // may begin the connection's next request: nothing after it
}

// After the first byte nothing is tried again: an event stream says what happened, then the transfer stays
// without its end, so that no client takes it for whole.
void Exchange::BreakOff(OutcomeClass outcome) {
  loop_.shared().metrics.failed_after_first_byte.Add();
  Complete(outcome == OutcomeClass::kTimeout ? outcome : OutcomeClass::kStreamError);
  if (shape_.event_stream && scan_ && may_insert_ && scanner_.at_border()) {
    std::string event;
    openai::StreamWriter::Error(event, {502, "server_error", "replica_failed", "",
                                        "The replica broke off in the middle of the answer."});
    const std::string_view data[] = {event};
    RelayChunked(data);
    return client_.FinishResponse(false);
  }
  if (client_.unsent_bytes() > 0)
    return client_.FinishResponse(false);  // what came before the break is still sent
  client_.Abort();
}

void Exchange::OnDrained() {
  if (!paused_) return;
  paused_ = false;
  if (attempt_ != nullptr) attempt_->Resume();
}

// Heartbeats: a comment line on a stream that was quiet since the last tick, and only between events
// (PRX-19).
void Exchange::OnTick(Instant now) {
  if (last_sent_ == Instant{}) {
    last_sent_ = now;
    return;
  }
  if (now - last_sent_ < loop_.shared().options.heartbeat || !may_insert_ || !scan_ || !scanner_.at_border())
    return;
  last_sent_ = now;
  const std::string_view data[] = {": \n\n"};
  RelayChunked(data);
}

}  // namespace kvring::router
