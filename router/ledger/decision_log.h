// DecisionLog: the stories of the last `capacity` requests in a ring, found by client name or id, and the
// sums over all requests. Open at the first decision of a request, Close exactly once; a story that was
// overwritten meanwhile still counts in the sums. A client name that repeats finds the latest. Memory is
// bounded by the capacity. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/ledger/record.h"

namespace kvring::router {

class DecisionLog {
 public:
  explicit DecisionLog(size_t capacity);

  /// Starts a story; the reference is good until the next Open. Later changes go through Edit.
  DecisionRecord& Open(RequestId id);
  /// nullptr when overwritten.
  DecisionRecord* Edit(RequestId id);
  void Named(RequestId id, std::string_view name);

  struct Closing {
    OutcomeClass outcome = OutcomeClass::kOk;
    std::optional<Reason> reason;  // absent: refused
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = -1;  // -1: not told
    int64_t predicted_cached_tokens = 0;
    int64_t completion_tokens = 0;
    Duration total{};
  };
  void Close(RequestId id, const Closing& closing);

  /// By client name, or by the decimal id.
  std::optional<DecisionRecord> Find(std::string_view id) const;
  /// Newest first.
  std::vector<DecisionRecord> Recent(size_t limit) const;
  const Totals& totals() const { return totals_; }

 private:
  std::vector<DecisionRecord> ring_;
  size_t capacity_;
  uint64_t opened_ = 0;
  absl::flat_hash_map<RequestId, size_t> by_id_;  // look-up only
  absl::flat_hash_map<std::string, RequestId> by_name_;
  Totals totals_;
};

}  // namespace kvring::router
