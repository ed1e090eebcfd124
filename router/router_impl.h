// Internal to the façade: what Router holds, and its parts by file: membership and views (router.cc),
// requests' lives (router_requests.cc), waiting in line (router_queue.cc).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/fleet/cache_belief.h"
#include "router/fleet/charge.h"
#include "router/fleet/replica_table.h"
#include "router/fleet/session_table.h"
#include "router/ledger/decision_log.h"
#include "router/policy/policy.h"
#include "router/router.h"

namespace kvring::router {

inline constexpr int64_t kForesightWindow = 1000;  // requests

/// One request between OnRequest and OnComplete.
struct ActiveRequest {
  const PromptKey* prompt = nullptr;
  std::string model;
  std::optional<SessionKey> session;
  std::vector<ReplicaId> excluded;
  Decision decision;
  ReplicaId replica;  // of the attempt under way; valid while `placed`
  bool placed = false;
  bool trial = false;
  bool rests_on_computed = true;  // what was expected in the cache had been computed by then
  int32_t max_output_tokens = 0;
  Charge charge;
  AdmittedReport admitted;  // its span is not kept
  Instant started{};
  Instant dispatched{};               // of the attempt under way
  uint64_t arrival = 0;               // number of the request, from 1
  uint64_t story = 0;                 // its number in the log
  std::optional<QueueTicket> ticket;  // while it waits
  QueueListener* listener = nullptr;
};

class Router::Impl {
 public:
  Impl(const RouterConfig& config, std::unique_ptr<Policy> policy);

  ReplicaId AddReplica(const ReplicaSpec& spec);
  void RemoveReplica(ReplicaId id);
  void OnReplicaFacts(Replica& replica, const ReplicaFacts& facts);
  void Tick(Instant now);
  ReplicaView View(const Replica& replica, Instant now) const;
  std::vector<std::string> Warnings();

  Decision OnRequest(const RequestView& view, Instant now);
  void OnDispatch(RequestId id, Instant now);
  void OnAdmitted(RequestId id, const AdmittedReport& report);
  void OnFirstToken(RequestId id, Instant now);
  void OnAttemptFailed(RequestId id, const AttemptFailure& failure, Instant now);
  void OnComplete(RequestId id, const CompletionReport& report, Instant now);

  /// Someone who waits may have room now; call after whatever may have made some.
  void Touch() { may_release_ = true; }
  bool MayRelease() const { return may_release_ && (queue_.size() > 0 || !shed_.empty()); }
  std::vector<Released> TakeReady(Instant now);
  QueueStats queue_stats() const;

  ReplicaTable& table() { return table_; }
  CacheBelief& belief() { return belief_; }
  uint64_t retries_refused() const { return retry_budget_.refused(); }
  std::vector<std::string> Panics();
  std::string_view policy_name() const { return config_.policy; }
  const DecisionLog& log() const { return log_; }
  uint64_t usage_anomalies() const { return usage_anomalies_; }

 private:
  /// Who of the pool may take a request now.
  struct Choices {
    std::span<const uint32_t> with_room;
    Replica* trial = nullptr;  // goes first
    bool nobody = false;       // not even a full one
    bool none() const { return trial == nullptr && with_room.empty(); }
  };

  ActiveRequest* Find(RequestId id);
  Replica* ReplicaOf(const ActiveRequest& active) {
    return active.placed ? table_.Find(active.replica) : nullptr;
  }
  ActiveRequest& Open(const RequestView& view, Instant now);
  Choices Survey(const ActiveRequest& active, Instant now);
  void Choose(ActiveRequest& active, const Choices& choices, Instant now);
  Pick ChooseByPolicy(const ActiveRequest& active, std::span<const uint32_t> eligible, Instant now);
  void Record(const ActiveRequest& active);
  void Release(ActiveRequest& active, Replica& replica, OutcomeClass outcome, Duration retry_after,
               Instant now);
  void Learn(const ActiveRequest& active, Replica& replica, const UsageReport& usage);
  UsageReport Sane(const UsageReport& usage);
  Duration Patience(const Replica& replica, int64_t uncached, Instant now) const;
  static void CountReuse(const ActiveRequest& active, Replica& replica, int64_t cached);
  void LearnCapacity(const ActiveRequest& active, Replica& replica, const UsageReport& usage);
  void CountForesight(const ActiveRequest& active, const UsageReport& usage);
  void WarnOf(const Replica& replica, std::vector<std::string>& warnings) const;
  void SetIndexCapacity(const Replica& replica);

  QueueRank RankOf(const RequestView& view, const ActiveRequest& active) const {
    return {-int64_t{view.priority}, active.arrival};
  }
  void Wait(const RequestView& view, ActiveRequest& active, Instant now);
  void Refuse(ActiveRequest& active, Refusal refusal, Instant now);
  Released Leave(RequestId id, Refusal refusal, Instant now);
  Refusal ReasonOfExpiry(const ActiveRequest& active, Instant now);
  Duration RetryAfter(const ActiveRequest& active, Instant now);

  RouterConfig config_;
  std::unique_ptr<Policy> policy_;
  Random random_;
  ReplicaTable table_;
  CacheBelief belief_;
  SessionTable sessions_;
  DecisionLog log_;
  absl::flat_hash_map<RequestId, ActiveRequest> active_;  // look-up only
  ResidencyPath path_;
  std::vector<uint32_t> allowed_;
  std::vector<uint32_t> with_room_;
  std::vector<uint32_t> warm_;
  RetryBudget retry_budget_;
  double slowest_first_token_s_ = 0;  // of late; fades
  double mean_output_tokens_ = 0;
  Instant ticked_{};
  uint64_t requests_ = 0;
  uint64_t without_session_ = 0;
  uint64_t usage_anomalies_ = 0;  // counts that cannot be, put right
  // Predictions that are near zero while engines find much: the two sides cut or hash prompts differently
  // (PFX-15).
  struct Foresight {
    int64_t requests = 0, predicted = 0, prompt = 0, cached = 0;
    bool fails() const {
      return requests >= kForesightWindow && 20 * cached > prompt && 20 * predicted < cached;
    }
  } foresight_;

  AdmissionQueue queue_;
  std::vector<RequestId> shed_;  // out of the line, not told yet
  bool may_release_ = false;
  QueueStats stats_;
};

}  // namespace kvring::router
