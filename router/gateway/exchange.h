// Internal to the gateway (shows Asio): one client connection's running request, from read to answered:
// prepare, route (or wait for room), attempt, relay, report. An object per connection, reused from request to
// request.
//
// What may be retried: an attempt that failed before a body byte of its answer was passed to the client; the
// answer's head is held back until then. Afterwards a failure is told in-band (event streams, at an event
// border) and the connection is cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/net/server_connection.h"
#include "common/openai/api_error.h"
#include "common/openai/request_head.h"
#include "router/fleet/prompt_key.h"
#include "router/gateway/answer_scanner.h"
#include "router/gateway/forward_head.h"
#include "router/gateway/gateway_loop.h"
#include "router/gateway/upstream.h"

namespace kvring::router {

class Exchange final : public net::RequestOwner, public AnswerSink, private net::Ticked {
 public:
  Exchange(GatewayLoop& loop, net::ServerConnection& client) : loop_(loop), client_(client) {}
  ~Exchange() override;

  /// A request is read.
  void Begin();
  /// It waited in the queue: it may go, or is refused.
  void OnReleased(const Decision& decision);

 private:
  // Preparing (exchange.cc).
  void Reset();
  bool Authorized();
  void Dispatch(std::string_view path);
  bool AnswerLocally(std::string_view path);
  void AnswerModels(std::string_view path);
  void AnswerAdmin();
  bool DecodeBody();
  bool Prepare();
  void SpliceModel();
  void SpliceSalt();
  bool WithinLimits();
  void EndOfKey(int64_t tokens);
  void FindSession();
  std::string OwnLines() const;
  void ReplyError(const openai::ApiError& error, std::string_view extra_lines = "");

  // Routing and attempts (exchange_attempt.cc).
  bool Route();
  void Proceed();
  void Refuse();
  void RefuseWith(const openai::ApiError& error);
  void StartAttempt();
  Duration FirstByteBound() const;
  bool TryElsewhere(const AttemptFailure& failure);
  void Complete(OutcomeClass outcome);

  // AnswerSink (exchange_relay.cc).
  void OnAdmitted(const AdmittedReport& report) override;
  void OnHead(const AnswerHead& head) override;
  void OnBody(const AnswerBytes& bytes) override;
  void OnEnd(const std::optional<UsageReport>& usage) override;
  void OnFailed(const UpstreamFailure& failure) override;
  void ShapeAnswer(const AnswerHead& head);
  void Relay(const AnswerBytes& bytes);
  void RelayChunked(std::span<const std::string_view> data);
  void FirstByte();
  void BreakOff(OutcomeClass outcome);
  OutcomeClass OutcomeOfAnswer() const;

  // RequestOwner, Ticked.
  void OnGone() override;
  void OnDrained() override;
  void OnTick(Instant now) override;

  GatewayLoop& loop_;
  net::ServerConnection& client_;

  RequestId id_;
  std::string name_;
  Instant started_{};
  GenerationRoute route_ = GenerationRoute::kNone;
  openai::RequestHead openai_;
  std::string model_;
  PromptKey prompt_;
  bool has_prompt_ = false;
  std::shared_ptr<ApiKey> key_;  // shared with the access rules, which may change meanwhile
  bool key_begun_ = false;       // the key's limits count this request
  std::string session_name_;
  SessionSource session_source_ = SessionSource::kNone;
  bool body_decoded_ = false;

  bool known_to_router_ = false;
  bool owes_completion_ = false;
  bool refused_ = false;
  int attempts_ = 0;
  int losses_ = 0;  // attempts whose replica had the request and was lost
  std::vector<ReplicaId> excluded_;
  Decision decision_;
  std::shared_ptr<Endpoint> endpoint_;  // shared: a member may leave while the request runs
  Attempt* attempt_ = nullptr;
  std::string forward_head_;

  std::string answer_head_;  // held back until the first body byte
  bool head_sent_ = false;
  bool first_byte_ = false;  // of a stream
  int status_ = 0;
  AnswerShape shape_;
  bool relay_wire_ = true;  // bytes go as they come; else data is framed anew
  bool scan_ = false;
  bool may_insert_ = false;  // bytes of our own may stand at the present place of the stream
  bool paused_ = false;
  AnswerScanner scanner_;
  std::optional<AnswerBytes> last_bytes_;  // between the last OnBody and OnEnd
  std::optional<UsageReport> usage_told_;  // beside the bytes; valid during OnEnd
  Instant last_sent_{};                    // for heartbeats
};

}  // namespace kvring::router
