// ReplicaTable: the members of the fleet, by id, by URL and by dense slot, and who may serve a model now.
// Eligible(model): members that serve it, have weight and do not drain, in the best state that any of them
// is in:
//   up and not cooling > up but cooling > not yet probed. When more than half are ejected, these are
//   let in as well (panic). Down (by probes) and draining ones never are.
// A removed replica leaves every set at once; its record lives until its last request ended. Ids are never
// reused, slots are. Not thread-safe; time is an argument.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/fleet/decode_model.h"
#include "router/fleet/prefill_model.h"
#include "router/fleet/replica.h"

namespace kvring::router {

class ReplicaTable {
 public:
  explicit ReplicaTable(const HealthRules& rules) : rules_(rules) {}

  /// Adds it, or updates weight, models and capacity of the member with this URL.
  Replica& Add(const ReplicaSpec& spec);
  void Remove(Replica& replica);
  /// Frees the record if it is removed and its last request has ended.
  void Collect(Replica& replica);

  Replica* Find(ReplicaId id);
  Replica* FindByNameOrUrl(std::string_view text);
  Replica* at(uint32_t slot) { return slots_[slot].get(); }
  const Replica* at(uint32_t slot) const { return slots_[slot].get(); }
  uint32_t slot_count() const { return static_cast<uint32_t>(slots_.size()); }
  /// Members that are not removed, in order of being added.
  const std::vector<Replica*>& members() const { return members_; }

  /// Models of all members, in order of first appearance; kept between changes.
  const std::vector<std::string>& Models();
  /// The pool a request's model means: empty or "default" is the first model. A name nobody declared is "".
  const std::string& Resolve(std::string_view model);

  struct Pool {
    std::vector<uint32_t> eligible;  // slots, ascending
    std::vector<uint32_t> members;   // all that serve the model, whatever their state
    std::vector<uint32_t> ejected;   // those that could serve but for their ejection
    bool panic = false;
    Instant slow_until{};  // until then some member starts slowly
  };
  const Pool& PoolOf(const std::string& resolved_model, Instant now);
  /// The pool's eligible slots but for those of `excluded`; kept in `allowed`.
  std::span<const uint32_t> Without(const Pool& pool, std::span<const ReplicaId> excluded,
                                    std::vector<uint32_t>& allowed) const;
  /// Those of `slots` that do not cool and have fewer than `max_in_flight` requests of ours (0: no bound);
  /// kept in `out`.
  std::span<const uint32_t> WithRoom(std::span<const uint32_t> slots, int32_t max_in_flight, Instant now,
                                     std::vector<uint32_t>& out) const;
  /// Those of `slots` that do not start slowly, or have room while they do; all where that leaves none. Kept
  /// in `out`.
  std::span<const uint32_t> Warm(std::span<const uint32_t> slots, Instant now,
                                 std::vector<uint32_t>& out) const;
  /// When the first of `slots` stops cooling, if all of them do; `now` otherwise.
  Instant CoolingEnd(std::span<const uint32_t> slots, Instant now) const;
  /// An ejected member of the pool whose time is over and that has no trial running.
  Replica* WantsTrial(const Pool& pool, Instant now);

  /// Call after any change of health, weight, models or draining of a member.
  void Changed() { ++state_version_; }
  /// Moves on with each change of the set of members or their weights (what rings depend on).
  uint64_t membership_version() const { return membership_version_; }

  PrefillModel& prefill_model() { return prefill_model_; }
  const PrefillModel& prefill_model() const { return prefill_model_; }
  const DecodeModel& decode_model() const { return decode_model_; }
  /// Keeps what a replica said of its load.
  void OnLoadReport(Replica& replica, const LoadReport& report, Instant now);
  /// Effective prefill tokens per second of one: the fleet's, over how much slower this replica is. Replicas
  /// that tell their rate are compared with the mean of those told, in steps of 2^(1/2), so that noise does
  /// not tell equal ones apart; for the others the fleet's model and Slowness stand.
  double PrefillRateOf(const Replica& replica) const;

 private:
  struct CachedPool {
    uint64_t version = 0;
    Instant valid_until{};
    Pool pool;
  };
  void Rebuild(const std::string& model, CachedPool& cached, Instant now);
  uint32_t FreeSlot();

  HealthRules rules_;
  uint32_t last_id_ = 0;
  uint64_t state_version_ = 1;
  uint64_t membership_version_ = 1;
  PrefillModel prefill_model_;
  DecodeModel decode_model_;
  double told_rate_ = 0;  // mean of the prefill rates that replicas told, 0: none did
  std::vector<std::unique_ptr<Replica>> slots_;
  std::vector<Replica*> members_;
  absl::flat_hash_map<ReplicaId, uint32_t> slot_of_;  // look-up only
  std::map<std::string, CachedPool> pools_;           // keyed by declared models and ""
  std::vector<std::string> models_;
  uint64_t models_version_ = 0;
  std::string none_;
};

}  // namespace kvring::router
