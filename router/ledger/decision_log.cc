#include "router/ledger/decision_log.h"

#include <algorithm>
#include <charconv>

namespace kvring::router {

DecisionLog::DecisionLog(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {
  totals_.outcomes.resize(kOutcomeClasses);
  totals_.reasons.resize(kReasons);
}

DecisionRecord& DecisionLog::Open(RequestId id) {
  const size_t place = opened_++ % capacity_;
  if (place >= ring_.size()) {
    ring_.emplace_back();
  } else {
    by_id_.erase(ring_[place].id);
    const auto named = by_name_.find(ring_[place].name);
    if (named != by_name_.end() && named->second == ring_[place].id) by_name_.erase(named);
    ring_[place] = {};
  }
  ring_[place].id = id;
  by_id_[id] = place;
  return ring_[place];
}

DecisionRecord* DecisionLog::Edit(RequestId id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &ring_[it->second];
}

void DecisionLog::Named(RequestId id, std::string_view name) {
  DecisionRecord* record = Edit(id);
  if (record == nullptr || name.empty()) return;
  record->name = name;
  by_name_[record->name] = id;
}

void DecisionLog::Close(RequestId id, const Closing& closing) {
  ++totals_.requests;
  ++totals_.outcomes[static_cast<size_t>(closing.outcome)];
  if (closing.reason) ++totals_.reasons[static_cast<size_t>(*closing.reason)];
  totals_.prompt_tokens += static_cast<uint64_t>(std::max<int64_t>(closing.prompt_tokens, 0));
  totals_.completion_tokens += static_cast<uint64_t>(std::max<int64_t>(closing.completion_tokens, 0));
  if (closing.cached_tokens >= 0) {
    totals_.cached_tokens += static_cast<uint64_t>(closing.cached_tokens);
    totals_.predicted_cached_tokens += static_cast<uint64_t>(closing.predicted_cached_tokens);
  }
  DecisionRecord* record = Edit(id);
  if (record == nullptr) return;
  record->complete = true;
  record->outcome = closing.outcome;
  record->prompt_tokens = closing.prompt_tokens;
  record->cached_tokens = closing.cached_tokens;
  record->completion_tokens = closing.completion_tokens;
  record->total = closing.total;
}

std::optional<DecisionRecord> DecisionLog::Find(std::string_view id) const {
  if (const auto it = by_name_.find(std::string(id)); it != by_name_.end()) {
    if (const auto at = by_id_.find(it->second); at != by_id_.end()) return ring_[at->second];
  }
  RequestId number;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number.value);
  if (error != std::errc() || end != id.data() + id.size()) return std::nullopt;
  const auto at = by_id_.find(number);
  if (at == by_id_.end()) return std::nullopt;
  return ring_[at->second];
}

std::vector<DecisionRecord> DecisionLog::Recent(size_t limit) const {
  std::vector<DecisionRecord> newest;
  const size_t count = std::min(limit, ring_.size());
  for (size_t i = 1; i <= count; ++i) newest.push_back(ring_[(opened_ - i) % capacity_]);
  return newest;
}

}  // namespace kvring::router
