// Policy: picks one replica for a request among those that may serve it. One policy per file; MakePolicy
// knows them by name. A policy keeps only what follows from the members (rings) and from traffic (sketches,
// a turn counter); loads, health and residency belong to the fleet and are read through PickInput. Same
// inputs and generator, same pick. No pick depends on a replica's place in a list: ties go by rotation, ring
// or the generator. Pure; not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "router/fleet/cache_belief.h"
#include "router/fleet/replica_table.h"
#include "router/fleet/residency_index.h"
#include "router/policy/decision.h"

namespace kvring::router {

struct PickInput {
  const ReplicaTable& fleet;
  CacheBelief& belief;
  const ResidencyPath& path;           // of this prompt
  std::span<const uint32_t> eligible;  // slots, not empty, ascending
  const PromptKey& prompt;
  double bytes_per_token = 4;
  int64_t prompt_tokens = 0;  // at least 1
  double mean_output_tokens = 0;
  std::optional<SessionKey> session;
  std::optional<uint32_t> session_slot;  // who served the session last, if eligible
  int64_t session_tokens = 0;            // of the session's prompt there, in that replica's present life
  Instant now;

  /// Whole index blocks only, and never the last token.
  int64_t MatchedTokens(uint32_t slot) const;
  bool IsEligible(uint32_t slot) const;
};

struct Pick {
  uint32_t slot = 0;
  Reason reason = Reason::kCold;
  std::vector<Candidate> candidates;  // scored ones, if the policy scores; the chosen one first
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Pick Choose(const PickInput& input, Random& random) = 0;
  /// It places by session: requests without a key are worth a warning.
  virtual bool wants_session() const { return false; }
};

/// nullptr for an unknown name.
std::unique_ptr<Policy> MakePolicy(std::string_view name);
/// Canonical names, without aliases.
std::vector<std::string> PolicyNames();

}  // namespace kvring::router
