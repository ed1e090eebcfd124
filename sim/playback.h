// Playback: which request of a trace comes when, and what it says. Requests that wait for nobody come at
// their time; follow-ups come a pause after what they wait for has ended, and go on from its prompt and
// answer. Also keeps what one cache that never forgets would have held (InfiniteCache). Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "router/fleet/prompt_key.h"
#include "sim/infinite_cache.h"
#include "sim/trace.h"

namespace kvring::sim {

class Playback {
 public:
  /// The trace must outlive it. `block_tokens`: of the replicas; `grain`: tokens per id.
  Playback(const Trace& trace, int32_t block_tokens, int32_t grain);

  /// Requests that wait for nobody, in order of their time.
  bool any() const { return next_ < arrivals_.size(); }
  Instant next_at() const { return Instant{1} + trace_.requests[arrivals_[next_]].arrival; }
  uint32_t TakeNext() { return arrivals_[next_++]; }

  const TraceRequest& request(uint32_t index) const { return trace_.requests[index]; }
  History PromptOf(uint32_t index) const;
  /// Tokens of the prompt that a cache without end would hold by now; from here on it holds the prompt.
  int64_t CeilingOf(const History& prompt, const router::PromptKey& key);

  /// What a replica generates for it, where it does not make tokens itself.
  static uint64_t AnswerContent(uint32_t index);

  struct FollowUp {
    uint32_t index = 0;
    Duration pause{};
  };
  /// The request is over, its prompt and answer being `history`, of which the last token has no place in a
  /// cache. Returns who comes now.
  std::vector<FollowUp> End(uint32_t index, History history, uint32_t replica);
  /// Who served the request that `index` waited for; call before End(index).
  uint32_t ReplicaBefore(uint32_t index) const { return ended_.at(request(index).after).replica; }

 private:
  // What follow-ups go on from, until the last of them has ended.
  struct Ended {
    History history;
    uint32_t replica = 0;
    size_t followers = 0;
  };

  const Trace& trace_;
  int32_t grain_;
  InfiniteCache infinite_;
  std::vector<uint32_t> arrivals_;
  size_t next_ = 0;
  std::multimap<int64_t, uint32_t> followers_;
  std::map<int64_t, Ended> ended_;
};

}  // namespace kvring::sim
