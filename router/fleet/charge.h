// Charge: one attempt's share of its replica's load. Taken at dispatch, before any upstream byte; given back
// in parts (KV need at admission, prefill at the first token, the rest at the end), each part exactly once
// whatever order the events come in. A dispatch always charges at least one token, so prompts too short for
// a block still count. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "router/fleet/prefill_model.h"
#include "router/fleet/replica.h"

namespace kvring::router {

class Charge {
 public:
  void Take(Replica& replica, int64_t prefill_tokens, int64_t kv_tokens, double rate, Instant now) {
    prefill_ = std::max<int64_t>(prefill_tokens, 1);
    kv_ = std::max<int64_t>(kv_tokens, 0);
    taken_ = awaiting_ = true;
    at_ = now;
    replica.prefill_free_at = std::max(replica.prefill_free_at, now);
    replica.prefill_free_at = replica.prefill_free_at + FromSeconds(static_cast<double>(prefill_) / rate);
    ++replica.load.in_flight;
    ++replica.load.awaiting_first_token;
    replica.load.pending_prefill_tokens += prefill_;
    replica.load.pending_kv_tokens += kv_;
  }

  /// Its prompt is in the index by that insert, though not computed yet.
  void Inserted(Replica& replica, uint32_t number) {
    insert_ = number;
    replica.load.prefilling.push_back(number);
  }

  void Admitted(Replica& replica) {
    replica.load.pending_kv_tokens -= kv_;
    kv_ = 0;
  }

  /// `prefilled`: tokens really computed, if told; the charge itself otherwise.
  void FirstToken(Replica& replica, PrefillModel& model, std::optional<int64_t> prefilled, Instant now) {
    if (!awaiting_) return;
    const auto tokens = static_cast<double>(prefilled.value_or(prefill_));
    const double seconds = ToSeconds(now - at_);
    if (model.known())
      replica.slowness.Observe(model.FixedSeconds() + tokens / model.TokensPerSecond(), seconds);
    model.Observe(tokens, seconds);
    StopAwaiting(replica, now);
  }

  void End(Replica& replica, Instant now) {
    if (!taken_) return;
    if (awaiting_) StopAwaiting(replica, now);
    Admitted(replica);
    --replica.load.in_flight;
    taken_ = false;
  }

  bool taken() const { return taken_; }
  bool awaiting() const { return awaiting_; }

 private:
  void StopAwaiting(Replica& replica, Instant now) {
    awaiting_ = false;
    --replica.load.awaiting_first_token;
    replica.load.pending_prefill_tokens -= prefill_;
    std::erase(replica.load.prefilling, insert_);
    if (replica.load.awaiting_first_token == 0) replica.prefill_free_at = now;
  }

  Instant at_{};
  int64_t prefill_ = 0;
  int64_t kv_ = 0;
  uint32_t insert_ = 0;
  bool taken_ = false;
  bool awaiting_ = false;
};

}  // namespace kvring::router
