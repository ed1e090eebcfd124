// Router: the façade over fleet, policy and ledger; all that the shells (gateway, discovery, admin) and the
// simulator call. Event in, decision out: it reads no clock, draws no entropy but from its seed, and does no
// I/O. NOT thread-safe: the live system owns it behind one guard (router/gateway/router_guard.h), the
// simulator calls it alone.
//
// One request's life: OnRequest (decide) -> OnDispatch (counted in flight from here, before any upstream
// byte)
//   -> [OnAdmitted] -> OnFirstToken -> OnComplete. A failed attempt ends with OnAttemptFailed; then OnRequest
//   again with the failed replicas excluded, or OnComplete. OnComplete is called exactly once per request
//   that was dispatched, refused or queued (then it cancels); all gauges return to zero by it.
// Where admission is on, OnRequest may answer "queued": TakeReady tells later who may go, dispatched already,
// and whose time is over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "common/instant.h"
#include "router/fleet/health.h"
#include "router/fleet/outcome.h"
#include "router/fleet/prompt_key.h"
#include "router/fleet/replica_types.h"
#include "router/ledger/record.h"
#include "router/policy/admission_queue.h"
#include "router/policy/decision.h"
#include "router/policy/retry_budget.h"

namespace kvring::router {

class Router;

/// Whom the shell tells of a release. The core only passes it back.
class QueueListener {
 public:
  virtual void OnReleased(RequestId request, const Decision& decision) = 0;

 protected:
  ~QueueListener() = default;
};

struct RequestView {
  RequestId id;
  std::string_view name;   // what a client knows it by (x-request-id); for Why
  std::string_view model;  // as asked; empty or "default": the first model of the pool
  // Must stay as it is, its bytes too, until OnComplete returns: reported block ends are hashed over them.
  // Null: routed by load.
  const PromptKey* prompt = nullptr;
  std::optional<SessionKey> session;
  SessionSource session_source = SessionSource::kNone;
  int32_t max_output_tokens = 0;        // 0: unknown
  std::span<const ReplicaId> excluded;  // replicas that failed this request already
  // Waiting for room, where admission is on.
  int32_t priority = 0;  // higher goes first
  std::optional<Instant> deadline;
  QueueListener* listener = nullptr;  // comes back with Released; lives as long as the request
};

/// A request that waited and may go, or waits no longer. With a replica it is dispatched already (OnDispatch
/// was done for it); a refusal is told to the client and completed as one of OnRequest.
struct Released {
  RequestId id;
  Decision decision;
  QueueListener* listener = nullptr;
};

struct QueueStats {
  size_t waiting = 0;
  // How requests left the queue, and how many it never took (full).
  uint64_t served = 0;
  uint64_t cancelled = 0;
  uint64_t timed_out = 0;
  uint64_t no_endpoints = 0;  // timed out while all replicas were gone or cooling
  uint64_t full = 0;
};

/// Runs `work` alone with the core: how shells reach the one router of a process.
using RouterAccess = std::function<void(absl::FunctionRef<void(Router&)> work)>;

struct RouterConfig {
  std::string policy = "cache-aware";
  uint64_t seed = 0;
  HealthRules health;
  AdmissionRules admission;
  RetryRules retries;
  Duration patience = std::chrono::seconds(5);  // least wait for a first token; 0: none is ever too late
  int64_t index_bytes = int64_t{256} << 20;     // hard bound of the residency index
  int64_t default_kv_tokens = 0;                // assumed for replicas of unknown capacity; 0: learnt
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
  /// The operator's word. What the replica says of itself (OnReplicaFacts) neither sets nor clears it.
  void SetDraining(ReplicaId replica, bool draining, Instant now);
  /// A new epoch drops everything believed of the replica's cache and load.
  void OnReplicaFacts(ReplicaId replica, const ReplicaFacts& facts, Instant now);
  void OnProbe(ReplicaId replica, bool ok, Instant now);
  void OnLoadReport(ReplicaId replica, const LoadReport& report, Instant now);
  /// Its load cannot be read (`why`, for operators): own counts are used, never a zero. Ends with the next
  /// OnLoadReport.
  void OnLoadUnknown(ReplicaId replica, std::string_view why);
  /// What the shell does with a gap: ask for a repeat from `wanted` on, or start anew.
  EventsTaken OnCacheEvents(ReplicaId replica, const CacheEventBatch& batch, Instant now);

  // Requests.
  Decision OnRequest(const RequestView& request, Instant now);
  void OnDispatch(RequestId request, Instant now);
  void OnAdmitted(RequestId request, const AdmittedReport& report, Instant now);
  void OnFirstToken(RequestId request, Instant now);
  void OnAttemptFailed(RequestId request, const AttemptFailure& failure, Instant now);
  void OnComplete(RequestId request, const CompletionReport& report, Instant now);

  /// Something that makes room has happened while requests wait: call TakeReady soon. Cheap.
  bool MayRelease() const;
  /// Those who wait no longer, in order of going. After any event that may make room, and after Tick.
  std::vector<Released> TakeReady(Instant now);

  /// Housekeeping (ejections that end, decaying rates); call about every 100 ms.
  void Tick(Instant now);

  // For operators.
  std::vector<ReplicaView> Replicas(Instant now) const;
  std::optional<ReplicaView> FindReplica(std::string_view name_or_url) const;
  /// Models of all replicas that are not removed, in order of first appearance.
  std::vector<std::string> Models() const;
  /// Kept for the last RouterConfig::kept_decisions.
  std::optional<DecisionRecord> Story(RequestId request) const;
  /// By client name or by the decimal RequestId.
  std::optional<DecisionRecord> Why(std::string_view id) const;
  /// Newest first.
  std::vector<DecisionRecord> RecentDecisions(size_t limit) const;
  Totals totals() const;
  QueueStats queue_stats() const;
  /// Retries that the budget did not allow.
  uint64_t retries_refused() const;
  /// Models whose pool is in panic: more than half of it is ejected.
  std::vector<std::string> Panics() const;
  /// Reports with counts that cannot be (negative, more cached than there was prompt); they are put right.
  uint64_t usage_anomalies() const;
  std::string_view policy() const;
  /// What the policy lacks ("session-ring: no session key on 12 of 40 requests"); empty when all is well.
  std::vector<std::string> Warnings() const;

 private:
  class Impl;
  explicit Router(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvring::router
