#include "router/fleet/replica_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvring::router {

uint32_t ReplicaTable::FreeSlot() {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) return slot;
  }
  slots_.emplace_back();
  return static_cast<uint32_t>(slots_.size() - 1);
}

Replica& ReplicaTable::Add(const ReplicaSpec& spec) {
  Changed();
  ++membership_version_;
  for (Replica* member : members_) {
    if (member->url != spec.url) continue;
    member->weight = spec.weight;
    if (!spec.models.empty()) member->models = spec.models;
    if (spec.kv_tokens > 0) {
      member->kv_tokens = spec.kv_tokens;
      member->kv_source = spec.kv_source;
    }
    return *member;
  }
  const uint32_t slot = FreeSlot();
  slots_[slot] = std::make_unique<Replica>(ReplicaId{++last_id_}, slot, spec, rules_);
  members_.push_back(slots_[slot].get());
  slot_of_[ReplicaId{last_id_}] = slot;
  return *slots_[slot];
}

void ReplicaTable::Remove(Replica& replica) {
  if (replica.removed) return;
  replica.removed = true;
  std::erase(members_, &replica);
  Changed();
  ++membership_version_;
  Collect(replica);
}

void ReplicaTable::Collect(Replica& replica) {
  if (!replica.removed || replica.load.in_flight > 0) return;
  slot_of_.erase(replica.id);
  slots_[replica.slot].reset();
}

Replica* ReplicaTable::Find(ReplicaId id) {
  const auto it = slot_of_.find(id);
  return it == slot_of_.end() ? nullptr : slots_[it->second].get();
}

Replica* ReplicaTable::FindByNameOrUrl(std::string_view text) {
  for (Replica* member : members_) {
    if (member->name == text || member->url == text) return member;
  }
  return nullptr;
}

const std::vector<std::string>& ReplicaTable::Models() {
  if (models_version_ == state_version_) return models_;
  models_version_ = state_version_;
  models_.clear();
  for (const Replica* member : members_) {
    for (const std::string& model : member->models) {
      if (std::find(models_.begin(), models_.end(), model) == models_.end()) models_.push_back(model);
    }
  }
  return models_;
}

const std::string& ReplicaTable::Resolve(std::string_view model) {
  const std::vector<std::string>& models = Models();
  if (model.empty() || model == "default") return models.empty() ? none_ : models.front();
  const auto it = std::find(models.begin(), models.end(), model);
  return it == models.end() ? none_ : *it;
}

const ReplicaTable::Pool& ReplicaTable::PoolOf(const std::string& resolved_model, Instant now) {
  CachedPool& cached = pools_[resolved_model];
  if (cached.version != state_version_ || now >= cached.valid_until) Rebuild(resolved_model, cached, now);
  return cached.pool;
}

void ReplicaTable::Rebuild(const std::string& model, CachedPool& cached, Instant now) {
  std::vector<uint32_t> ready, cooling, starting;
  Pool& pool = cached.pool;
  pool = {};
  cached.version = state_version_;
  cached.valid_until = {std::numeric_limits<int64_t>::max()};
  size_t candidates = 0;
  for (const Replica* member : members_) {
    if (!(model.empty() ? member->models.empty() : member->Serves(model))) continue;
    pool.members.push_back(member->slot);
    if (member->draining() || member->weight <= 0) continue;
    ++candidates;
    cached.valid_until = std::min(cached.valid_until, member->health.NextChange(now));
    pool.slow_until = std::max(pool.slow_until, member->health.slow_until());
    switch (member->state()) {
      case ReplicaState::kUp:
        (member->health.cooling(now) ? cooling : ready).push_back(member->slot);
        break;
      case ReplicaState::kStarting:
        starting.push_back(member->slot);
        break;
      case ReplicaState::kEjected:
        pool.ejected.push_back(member->slot);
        break;
      case ReplicaState::kDown:
      case ReplicaState::kDraining:
        break;
    }
  }
  pool.eligible = !ready.empty() ? ready : !cooling.empty() ? cooling : starting;
  pool.panic = 2 * pool.ejected.size() > candidates;
  if (pool.panic && rules_.panic == PanicRule::kRefuse) {
    pool.eligible.clear();
  } else if (pool.panic) {
    pool.eligible.insert(pool.eligible.end(), pool.ejected.begin(), pool.ejected.end());
  }
  std::sort(pool.eligible.begin(), pool.eligible.end());
}

std::span<const uint32_t> ReplicaTable::Without(const Pool& pool, std::span<const ReplicaId> excluded,
                                                std::vector<uint32_t>& allowed) const {
  allowed.clear();
  for (const uint32_t slot : pool.eligible) {
    if (std::find(excluded.begin(), excluded.end(), slots_[slot]->id) == excluded.end())
      allowed.push_back(slot);
  }
  return allowed;
}

std::span<const uint32_t> ReplicaTable::WithRoom(std::span<const uint32_t> slots, int32_t max_in_flight,
                                                 Instant now, std::vector<uint32_t>& out) const {
  out.clear();
  for (const uint32_t slot : slots) {
    const Replica& replica = *slots_[slot];
    if (replica.health.cooling(now)) continue;
    if (max_in_flight == 0 || replica.load.in_flight < max_in_flight) out.push_back(slot);
  }
  return out;
}

std::span<const uint32_t> ReplicaTable::Warm(std::span<const uint32_t> slots, Instant now,
                                             std::vector<uint32_t>& out) const {
  out.clear();
  for (const uint32_t slot : slots) {
    const Replica& replica = *slots_[slot];
    if (replica.load.in_flight < replica.health.SlowStartLimit(now)) out.push_back(slot);
  }
  return out.empty() ? slots : std::span<const uint32_t>(out);
}

Instant ReplicaTable::CoolingEnd(std::span<const uint32_t> slots, Instant now) const {
  Instant first{std::numeric_limits<int64_t>::max()};
  for (const uint32_t slot : slots) first = std::min(first, slots_[slot]->health.cooling_end(now));
  return slots.empty() ? now : first;
}

Replica* ReplicaTable::WantsTrial(const Pool& pool, Instant now) {
  for (const uint32_t slot : pool.ejected) {
    if (slots_[slot]->health.wants_trial(now)) return slots_[slot].get();
  }
  return nullptr;
}

void ReplicaTable::OnLoadReport(Replica& replica, const LoadReport& report, Instant now) {
  constexpr double kToldWeight = 0.05;
  const double told = report.prefill_tokens_per_second;
  if (told > 0) told_rate_ = told_rate_ == 0 ? told : told_rate_ + kToldWeight * (told - told_rate_);
  if (report.decode_step_seconds > 0) decode_model_.Observe(report.running, report.decode_step_seconds);
  replica.report = report;
  replica.load_error.clear();
  replica.reported = true;
  replica.reported_at = now;
}

double ReplicaTable::PrefillRateOf(const Replica& replica) const {
  if (told_rate_ == 0) return prefill_model_.TokensPerSecond() / replica.slowness.value();
  const double told = replica.report.prefill_tokens_per_second;
  if (told <= 0) return told_rate_;
  return told_rate_ / std::exp2(std::round(2 * std::log2(told_rate_ / told)) / 2);
}

}  // namespace kvring::router
