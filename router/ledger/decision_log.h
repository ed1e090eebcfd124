// DecisionLog: the stories of the last `capacity` requests in a ring, and the sums over all requests. Open at
// the first decision of a request, Close exactly once; a story that was overwritten meanwhile still counts in
// the sums. Writing is a matter of the ring's own memory, a million times for each search: a search walks the
// ring from the newest on, so a client name that repeats finds the latest. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/ledger/record.h"

namespace kvring::router {

class DecisionLog {
 public:
  explicit DecisionLog(size_t capacity);

  /// Starts a story; its number is what Edit and Close want.
  uint64_t Open(RequestId id, std::string_view name);
  /// nullptr when overwritten.
  DecisionRecord* Edit(uint64_t story);

  struct Closing {
    OutcomeClass outcome = OutcomeClass::kOk;
    std::optional<Reason> reason;  // absent: refused
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = -1;  // -1: not told
    int64_t predicted_cached_tokens = 0;
    int64_t completion_tokens = 0;
    Duration total{};
  };
  void Close(uint64_t story, const Closing& closing);

  std::optional<DecisionRecord> FindById(RequestId id) const;
  /// By client name, or by the decimal id.
  std::optional<DecisionRecord> Find(std::string_view id) const;
  /// Newest first.
  std::vector<DecisionRecord> Recent(size_t limit) const;
  const Totals& totals() const { return totals_; }

 private:
  std::vector<DecisionRecord> ring_;
  size_t capacity_;
  uint64_t opened_ = 0;  // the story of that number is at (number - 1) % capacity
  Totals totals_;
};

}  // namespace kvring::router
