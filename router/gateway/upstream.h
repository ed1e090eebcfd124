// Upstream: how the gateway reaches replicas. One implementation per wire (http_upstream.h; gRPC beside it),
// one object per event loop; every call here and every call of an AnswerSink is made on that loop's thread.
// Free of Asio and gRPC.
//
// One attempt: Start -> sink.OnAdmitted? -> sink.OnHead -> sink.OnBody* -> sink.OnEnd; or, at any point,
// sink.OnFailed instead of all that follows. After OnEnd, OnFailed or Attempt::Cancel the attempt is gone and
// calls nothing. A sink may call Cancel, or Start another attempt, inside any of its calls. Start never calls
// the sink before it has returned.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/instant.h"
#include "common/net/address.h"
#include "common/net/http_parser.h"
#include "common/openai/api_error.h"
#include "common/openai/request_head.h"
#include "router/fleet/outcome.h"

namespace kvring::router {

/// One replica as the data path reaches it. Shared by all loops; fixed but for the flags.
struct Endpoint {
  ReplicaId replica;
  std::string name;  // "r-1a2b3c4d"
  net::Url url;
  std::string authority;             // host:port for the Host field
  std::string api_key;               // sent as a bearer token; empty: none of our own
  std::atomic<bool> down{false};     // probes fail: attempts without a first byte are given up
  std::atomic<bool> removed{false};  // no longer a member: caches drop it
};

enum class GenerationRoute { kNone, kChat, kCompletions };

/// All views stay valid until the attempt's first OnHead, OnEnd, OnFailed or Cancel.
struct UpstreamRequest {
  RequestId id;
  std::shared_ptr<const Endpoint> endpoint;  // shared: members may leave while requests run
  std::string_view name;                     // x-request-id
  // HTTP: the whole head, ready to send, and the body byte for byte.
  std::string_view head;
  std::string_view body;
  bool to_head_request = false;
  Duration first_byte{};  // no first byte within it: given up; 0: the upstream's own bound
  bool probe = false;     // asks whether the replica is down, so it is not given up because it is
  // gRPC: the same request by its fields. `openai` is null unless the route generates.
  GenerationRoute route = GenerationRoute::kNone;
  const openai::RequestHead* openai = nullptr;
  std::string_view session;
};

enum class AnswerFraming {
  kNone,         // no body
  kLength,       // Content-Length is among the fields
  kChunkedWire,  // OnBody brings chunk framing as it came
  kPlain,        // no length known; OnBody brings body bytes alone
};

struct AnswerHead {
  int status = 200;
  std::string_view reason;
  std::span<const net::HeaderField> fields;  // as received; hop-by-hop ones are the sink's to leave out
  AnswerFraming framing = AnswerFraming::kPlain;
};

struct AnswerBytes {
  std::string_view wire;                   // to be relayed as it is
  std::span<const std::string_view> data;  // the body bytes inside it
  bool between_chunks = true;              // after it, bytes of the router's own may stand here
  // The answer's end: OnEnd follows at once, and in it these views are still valid. A sink can so report the
  // end before the client sees it, and the client's next request finds the core up to date.
  bool last = false;
};

struct UpstreamFailure {
  OutcomeClass outcome = OutcomeClass::kReplicaError;  // kReplicaError, kTimeout, kBackpressure
  std::string_view what;                               // for logs: "connection refused"
  bool lost = false;       // the connection ended, or nothing came in time, after the replica had the request
  Duration retry_after{};  // with kBackpressure
};

/// Who takes the answer of an attempt.
class AnswerSink {
 public:
  /// Engines behind gRPC tell it; before OnHead or after it, before the first delta.
  virtual void OnAdmitted(const AdmittedReport& report) = 0;
  virtual void OnHead(const AnswerHead& head) = 0;
  virtual void OnBody(const AnswerBytes& bytes) = 0;
  /// The answer is whole. `usage`: told beside the bytes (gRPC); otherwise the sink finds it in them.
  virtual void OnEnd(const std::optional<UsageReport>& usage) = 0;
  virtual void OnFailed(const UpstreamFailure& failure) = 0;

 protected:
  ~AnswerSink() = default;
};

/// A running attempt, owned by its Upstream.
class Attempt {
 public:
  /// Ends it at the replica too (closes the connection or resets the stream).
  virtual void Cancel() = 0;
  /// Back-pressure: no OnBody between Pause and Resume, and the replica is slowed by flow control.
  virtual void Pause() = 0;
  virtual void Resume() = 0;

 protected:
  ~Attempt() = default;
};

class Upstream {
 public:
  virtual ~Upstream() = default;
  virtual Attempt* Start(const UpstreamRequest& request, AnswerSink& sink) = 0;
};

struct UpstreamTimeouts {
  Duration connect = std::chrono::seconds(2);
  Duration first_byte = std::chrono::seconds(300);
  Duration idle = std::chrono::seconds(300);  // between two bytes of an answer
};

/// Runs tasks on one loop's thread, from any thread; outlives no loop.
using LoopPoster = std::function<void(std::function<void()>)>;
/// Makes the gRPC upstream of one loop.
using UpstreamFactory =
    std::function<std::unique_ptr<Upstream>(const UpstreamTimeouts& timeouts, LoopPoster poster)>;

}  // namespace kvring::router
