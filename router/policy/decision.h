// Decision: what the router answers for one request, and why. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/instant.h"

namespace kvring::router {

/// Why a replica was chosen. Names on the wire: session, prefix, ring, least_load, spill, cold, retry.
enum class Reason { kSession, kPrefix, kRing, kLeastLoad, kSpill, kCold, kRetry };
inline constexpr int kReasons = 7;
/// Why a request was refused. Names on the wire: no_endpoints, queue_full, queue_timeout, limit.
enum class Refusal { kNone, kNoEndpoints, kQueueFull, kQueueTimeout, kLimit };
std::string_view ReasonName(Reason reason);
std::string_view RefusalName(Refusal refusal);

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
  std::optional<ReplicaId> replica;  // empty: queued or refused
  bool queued = false;               // told later, by Router::TakeReady
  Reason reason = Reason::kCold;
  Refusal refusal = Refusal::kNone;
  Duration retry_after{};     // with a refusal, at least 1 s
  int64_t prompt_tokens = 0;  // estimate in byte mode
  int64_t predicted_cached_tokens = 0;
  Duration patience{};  // no first token within it: the replica is stuck; 0: not known enough to tell
  bool prediction_exact = false;      // from reported block ends or token ids; else an estimate
  std::vector<Candidate> candidates;  // the chosen one first
};

}  // namespace kvring::router
