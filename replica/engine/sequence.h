// Sequence: one choice of one request inside the engine: its history (prompt, then output), how much of it is
// computed, and its blocks. Preemption gives the blocks back and sets computed to 0; the output stays output.
// ActiveRequest: the request with its choices. Values without logic of their own: the scheduler plans them,
// the engine changes them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/ids.h"
#include "common/instant.h"
#include "replica/engine/request.h"
#include "replica/engine/sampler.h"
#include "replica/kv/block_manager.h"

namespace kvring::replica {

struct ActiveRequest;

/// Who goes first: higher priority, then earlier arrival, then lower choice. Total over the sequences of an
/// engine.
struct SequenceRank {
  int32_t priority = 0;
  uint64_t arrival = 0;
  int32_t choice = 0;
  friend bool operator<(const SequenceRank& a, const SequenceRank& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    return a.arrival != b.arrival ? a.arrival < b.arrival : a.choice < b.choice;
  }
};

struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kFinished };

  SequenceId id;
  ActiveRequest* request = nullptr;
  SequenceRank rank;
  TenantId tenant;
  State state = State::kWaiting;
  std::vector<TokenId> tokens;
  int32_t prompt_tokens = 0;
  int32_t computed = 0;  // tokens whose keys and values are in the blocks
  BlockTable table;

  int32_t slots = 1;  // of max_running: itself, and the siblings that will be forked from it
  /// Prompt tokens whose logits have been handed out; int32 max when none are wanted. Nothing beyond may come
  /// from the cache.
  int32_t prompt_rows_done = 0;
  bool admitted_once = false;
  int32_t cached_tokens = 0;  // found at the latest admission
  int32_t preemptions = 0;
  int32_t bypasses = 0;  // admissions of later ones while this one did not fit
  bool blocked = false;
  Instant blocked_since;
  TokenCounts counts;  // filled only when the request has penalties

  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  int32_t pending() const { return length() - computed; }
  int32_t output_tokens() const { return length() - prompt_tokens; }
};

struct BySequenceRank {
  bool operator()(const Sequence* a, const Sequence* b) const { return a->rank < b->rank; }
};

struct ActiveRequest {
  EngineRequest spec;
  Instant added;
  int32_t max_tokens = 0;                          // resolved
  std::vector<std::unique_ptr<Sequence>> choices;  // choice 0 alone until the prompt is computed
  int32_t finished_choices = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;
  bool ended = false;

  EngineUsage usage() const {
    return {static_cast<int32_t>(spec.prompt.size()), completion_tokens, cached_tokens};
  }
};

}  // namespace kvring::replica
