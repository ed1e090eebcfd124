// Router: the façade over fleet, policy and ledger; all that the shells (gateway, discovery, admin) and the simulator call.
// Event in, decision out: it reads no clock, draws no entropy but from its seed, and does no I/O.
// NOT thread-safe: the live system owns it behind one guard (router/gateway/router_guard.h), the simulator calls it alone.
//
// One request's life: OnRequest (decide) -> OnDispatch (counted in flight from here, before any upstream byte)
//   -> [OnAdmitted] -> OnFirstToken -> OnComplete. A failed attempt ends with OnAttemptFailed; then OnRequest again
//   with the failed replicas excluded, or OnComplete. OnComplete is called exactly once per request that was dispatched
//   or refused; all gauges return to zero by it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/instant.h"
#include "router/fleet/prompt_key.h"

namespace kvring::router {

/// Why a replica was chosen. Names on the wire: session, prefix, ring, least_load, spill, cold, retry.
enum class Reason { kSession, kPrefix, kRing, kLeastLoad, kSpill, kCold, kRetry };
/// Why a request was refused. Names on the wire: no_endpoints, queue_full, queue_timeout, limit.
enum class Refusal { kNone, kNoEndpoints, kQueueFull, kQueueTimeout, kLimit };
std::string_view ReasonName(Reason reason);
std::string_view RefusalName(Refusal refusal);

/// Where a session's name was found.
enum class SessionSource { kNone, kHeader, kGrpcField, kPromptCacheKey, kUser };

struct RequestView {
  RequestId id;
  std::string_view name;   // what a client knows it by (x-request-id); for Why
  std::string_view model;  // as asked; empty or "default": the first model of the pool
  const PromptKey* prompt = nullptr;
  std::optional<SessionKey> session;
  SessionSource session_source = SessionSource::kNone;
  int32_t max_output_tokens = 0;           // 0: unknown
  std::span<const ReplicaId> excluded;     // replicas that failed this request already
};

/// One scored replica. Costs in seconds; terms that a policy does not use are 0.
struct Candidate {
  ReplicaId replica;
  int64_t matched_tokens = 0;
  double cost_s = 0;
  double own_s = 0;
  double ext_s = 0;
  double mem_s = 0;
  double dec_s = 0;
};

struct Decision {
  std::optional<ReplicaId> replica;  // empty: refused
  Reason reason = Reason::kCold;
  Refusal refusal = Refusal::kNone;
  Duration retry_after{};            // with a refusal, at least 1 s
  int64_t prompt_tokens = 0;         // estimate in byte mode
  int64_t predicted_cached_tokens = 0;
  bool prediction_exact = false;     // from reported block ends, or token ids; else an estimate within one engine block
  std::vector<Candidate> candidates; // the chosen one first
};

/// What the engine told at first admission, or at completion (then with the generated text).
struct AdmittedReport {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  std::span<const uint32_t> block_end_bytes;  // empty for foreign engines
};

struct UsageReport {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  std::optional<int32_t> cached_tokens;  // absent: the engine does not report it
  std::span<const uint32_t> block_end_bytes;
  std::string_view generated_bytes;  // text of choice 0, continuing the canonical prompt; empty when unknown
};

/// How a request or an attempt ended. The classes add up to all requests.
enum class OutcomeClass { kOk, kClientError, kBackpressure, kReplicaError, kStreamError, kClientAbort, kTimeout, kRefused };
std::string_view OutcomeName(OutcomeClass outcome);

struct CompletionReport {
  OutcomeClass outcome = OutcomeClass::kOk;
  std::optional<UsageReport> usage;
};

struct AttemptFailure {
  OutcomeClass outcome = OutcomeClass::kReplicaError;  // kBackpressure cools, kReplicaError and kTimeout count to ejection
  Duration retry_after{};                              // told by a busy replica; 0: none
};

enum class CapacitySource { kUnknown, kConfig, kRegistered, kMetrics, kLearnt };

struct ReplicaSpec {
  std::string url;                  // identity of the place: http://… or grpc://…; the ring hashes it
  std::vector<std::string> models;  // empty until known
  double weight = 1;
  int64_t kv_tokens = 0;            // 0: unknown
  CapacitySource kv_source = CapacitySource::kUnknown;
};

/// What a replica says of itself once connected.
struct ReplicaFacts {
  Epoch epoch;
  std::vector<std::string> models;
  int64_t kv_tokens = 0;
  CapacitySource kv_source = CapacitySource::kUnknown;
  int32_t block_size = 0;           // tokens per engine block; 0: unknown
  int32_t context_length = 0;       // 0: unknown
  bool draining = false;
};

struct LoadReport {
  int32_t running = 0;
  int32_t waiting = 0;
  int64_t kv_used_tokens = 0;
  int64_t kv_cached_tokens = 0;
  int64_t pending_prefill_tokens = 0;
  double prefill_tokens_per_second = 0;  // 0: unknown
  double decode_step_seconds = 0;        // 0: unknown
};

enum class CacheEventKind { kStored, kRemoved, kCleared };
struct CacheEvent {
  CacheEventKind kind = CacheEventKind::kStored;
  BlockHash block;
  BlockHash parent;
};
struct CacheEventBatch {
  Epoch epoch;
  uint64_t first_sequence = 0;
  std::span<const CacheEvent> events;
};

enum class ReplicaState { kStarting, kUp, kDown, kEjected, kDraining };
std::string_view ReplicaStateName(ReplicaState state);

/// One replica as operators see it.
struct ReplicaView {
  ReplicaId id;
  std::string name;  // opaque and stable over restarts of the router: "r-" and 8 hex digits of the URL's hash
  std::string url;
  std::vector<std::string> models;
  ReplicaState state = ReplicaState::kStarting;
  Epoch epoch;
  double weight = 1;
  int32_t in_flight = 0;
  int64_t pending_prefill_tokens = 0;
  int64_t kv_capacity_tokens = 0;
  CapacitySource kv_source = CapacitySource::kUnknown;
  int64_t indexed_tokens = 0;
  uint64_t requests = 0;
  uint64_t failures = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  double prefill_tokens_per_second = 0;
};

/// The story of one request, kept for the last `RouterConfig::kept_decisions`.
struct DecisionRecord {
  RequestId id;
  std::string name;
  std::string model;
  Instant at;
  SessionSource session_source = SessionSource::kNone;
  Decision decision;              // of the last attempt
  std::string replica_name;
  int attempts = 0;
  bool complete = false;
  OutcomeClass outcome = OutcomeClass::kOk;
  int64_t prompt_tokens = 0;      // reported
  int64_t cached_tokens = -1;     // reported; -1: not told
  int64_t completion_tokens = 0;
  Duration ttft{};                // 0: no first token
  Duration total{};
};

struct Totals {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t predicted_cached_tokens = 0;
  uint64_t completion_tokens = 0;
  std::vector<uint64_t> outcomes;  // by OutcomeClass
  std::vector<uint64_t> reasons;   // by Reason
};

struct HealthRules {
  int unhealthy_after = 3;
  int healthy_after = 2;
  int eject_after = 5;
  Duration eject_time = std::chrono::seconds(10);
};

struct RouterConfig {
  std::string policy = "cache-aware";
  uint64_t seed = 0;
  HealthRules health;
  int64_t index_bytes = int64_t{256} << 20;  // hard bound of the residency index
  int64_t default_kv_tokens = 0;             // assumed for replicas of unknown capacity; 0: learnt
  size_t kept_decisions = 10'000;
};

class Router {
 public:
  /// An unknown policy name is nullptr; PolicyNames() lists the known ones.
  static std::unique_ptr<Router> Create(const RouterConfig& config);
  static std::vector<std::string> PolicyNames();
  ~Router();

  // Membership. Adding a URL that is present returns its id and updates weight, models and capacity.
  ReplicaId AddReplica(const ReplicaSpec& spec, Instant now);
  /// Running requests of it finish; their ids stay valid until then.
  void RemoveReplica(ReplicaId replica, Instant now);
  void SetDraining(ReplicaId replica, bool draining, Instant now);
  /// A new epoch drops everything believed of the replica's cache and load.
  void OnReplicaFacts(ReplicaId replica, const ReplicaFacts& facts, Instant now);
  void OnProbe(ReplicaId replica, bool ok, Instant now);
  void OnLoadReport(ReplicaId replica, const LoadReport& report, Instant now);
  void OnCacheEvents(ReplicaId replica, const CacheEventBatch& batch, Instant now);

  // Requests.
  Decision OnRequest(const RequestView& request, Instant now);
  void OnDispatch(RequestId request, Instant now);
  void OnAdmitted(RequestId request, const AdmittedReport& report, Instant now);
  void OnFirstToken(RequestId request, Instant now);
  void OnAttemptFailed(RequestId request, const AttemptFailure& failure, Instant now);
  void OnComplete(RequestId request, const CompletionReport& report, Instant now);

  /// Housekeeping (ejections that end, decaying rates); call about every 100 ms.
  void Tick(Instant now);

  // For operators.
  std::vector<ReplicaView> Replicas(Instant now) const;
  std::optional<ReplicaView> FindReplica(std::string_view name_or_url) const;
  /// Models of all replicas that are not removed, in order of first appearance.
  std::vector<std::string> Models() const;
  /// By client name or by the decimal RequestId.
  std::optional<DecisionRecord> Why(std::string_view id) const;
  /// Newest first.
  std::vector<DecisionRecord> RecentDecisions(size_t limit) const;
  Totals totals() const;
  std::string_view policy() const;
  /// What the policy lacks ("session-ring: no session key on 12 of 40 requests"); empty when all is well.
  std::vector<std::string> Warnings() const;

 private:
  class Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::router
