// ExchangeClient: the router's end of Inference.Exchange: one long stream to one replica that carries all
// requests. It dials in the background from its construction on, with back-off, and probes the open
// connection, so a replica that comes back is found without any request (GRP-04). A request that starts while
// the dial is under way waits for it (GRP-05).
//
// Thread-safe. Listener and sinks are called on gRPC's threads with no lock held; they must not block. Calls
// to the listener never overlap (OnProbe may); the events of one request come in order. After a sink's last
// event, OnBroken, or Cancel has returned, an event that was under way may still arrive; nothing after that.
// The destructor waits for calls that are under way: never destroy the client inside one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/instant.h"
#include "kvring/v1/inference.pb.h"
#include "router/gateway/grpc_tls.h"

namespace kvring::router {

/// Hears of the connection and of the replica behind it.
class ExchangeListener {
 public:
  virtual ~ExchangeListener() = default;
  /// The connection is up (its first message), or what the replica is has changed.
  virtual void OnInfo(const v1::ReplicaInfo& info) = 0;
  virtual void OnLoad(const v1::LoadReport& load) = 0;
  /// Once on each connection, before its first events: all that the replica's cache holds.
  virtual void OnCacheSnapshot(const v1::CacheSnapshot& snapshot) = 0;
  virtual void OnCacheEvents(const v1::CacheEvents& events) = 0;
  /// The connection ended, or could not be made; it is tried again.
  virtual void OnDown(std::string_view why) = 0;
  /// A probe of the open connection was answered, or was not in time.
  virtual void OnProbe(bool ok) = 0;
};

/// How a request ended without its last event.
struct BrokenCall {
  std::string_view what;
  bool any_delta = false;
  bool late = false;  // given up by the request's own bounds
};

/// Bounds of one request; 0: none.
struct CallTimes {
  uint32_t client_ms = 0;  // what is left of the client's time: the replica ends it then
  Duration first_delta{};  // no delta within it: given up
  Duration idle{};         // no event for so long after the first delta: given up
};

/// Takes the answer to one request.
class ExchangeSink {
 public:
  virtual ~ExchangeSink() = default;
  /// Ends with an event that holds `usage` or `error`.
  virtual void OnEvent(v1::GenerateResponse event) = 0;
  /// The connection broke before the last event, or the request was given up (BreakWaiting, ExpireLate).
  virtual void OnBroken(const BrokenCall& broken) = 0;
};

struct ExchangeOptions {
  std::string address;                          // host:port
  std::optional<GrpcClientTls> tls;             // absent: in the clear
  size_t max_message_bytes = size_t{64} << 20;  // of one request, or of one message from the replica
  Duration connect_timeout = std::chrono::seconds(2);
  Duration first_retry = std::chrono::milliseconds(100);  // doubles up to last_retry
  Duration last_retry = std::chrono::seconds(2);
  Duration probe_interval = std::chrono::seconds(1);
  Duration probe_timeout = std::chrono::seconds(1);
  int probes_until_cut = 10;  // unanswered in a row: the connection is dropped and dialled anew
};

class ExchangeClient {
 public:
  /// `listener` must outlive the client.
  ExchangeClient(ExchangeOptions options, ExchangeListener& listener);
  /// Running requests hear OnBroken.
  ~ExchangeClient();

  /// Sends the request; the sink may hear of it before this returns. The id is for Cancel. Errors, of which
  /// the sink hears nothing: Unavailable (not connected), ResourceExhausted (larger than a message may be:
  /// size and limit are named).
  absl::StatusOr<uint64_t> Start(v1::GenerateRequest request, const CallTimes& times,
                                 std::shared_ptr<ExchangeSink> sink);
  /// Gives up the requests whose bounds have passed, here and at the replica. Call it every few 100 ms.
  void ExpireLate(Instant now);
  /// The replica frees the request's blocks. Unknown and ended ids are nothing.
  void Cancel(uint64_t id);
  /// Gives up the requests that had no delta yet (OnBroken): the replica is frozen, and they can still go
  /// elsewhere.
  void BreakWaiting(std::string_view what);

  bool connected() const;
  size_t in_flight() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace kvring::router
