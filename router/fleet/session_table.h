// SessionTable: which replica served a session last, and how much it then computed. Two generations of at
// most `capacity / 2` sessions each: when the young one is full the old one is forgotten, so the most recent
// capacity/2 sessions are always known and memory is bounded without a list. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace kvring::router {

struct SessionHome {
  ReplicaId replica;
  Epoch epoch;         // of that replica then
  int64_t tokens = 0;  // of the session's prompt there
};

class SessionTable {
 public:
  explicit SessionTable(size_t capacity) : half_(capacity / 2) {}

  void Put(SessionKey session, const SessionHome& home) {
    if (young_.size() >= half_ && !young_.contains(session)) {
      old_ = std::exchange(young_, {});
    }
    young_[session] = home;
  }

  std::optional<SessionHome> Find(SessionKey session) const {
    if (const auto it = young_.find(session); it != young_.end()) return it->second;
    if (const auto it = old_.find(session); it != old_.end()) return it->second;
    return std::nullopt;
  }

  size_t size() const { return young_.size() + old_.size(); }

 private:
  size_t half_;
  absl::flat_hash_map<SessionKey, SessionHome> young_;  // look-up only
  absl::flat_hash_map<SessionKey, SessionHome> old_;
};

}  // namespace kvring::router
