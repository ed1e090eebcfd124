#include "router/ledger/decision_log.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace kvring::router {
namespace {

// As new, but with the memory of its texts and candidates.
void Renew(DecisionRecord& record) {
  DecisionRecord fresh;
  fresh.name.swap(record.name);
  fresh.model.swap(record.model);
  fresh.replica_name.swap(record.replica_name);
  fresh.decision.candidates.swap(record.decision.candidates);
  record = std::move(fresh);
}

}  // namespace

DecisionLog::DecisionLog(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {
  totals_.outcomes.resize(kOutcomeClasses);
  totals_.reasons.resize(kReasons);
}

uint64_t DecisionLog::Open(RequestId id, std::string_view name) {
  const size_t place = opened_ % capacity_;
  if (place == ring_.size()) {
    ring_.emplace_back();
  } else {
    Renew(ring_[place]);
  }
  ring_[place].id = id;
  ring_[place].name.assign(name);
  return ++opened_;
}

DecisionRecord* DecisionLog::Edit(uint64_t story) {
  const bool there = story > 0 && story <= opened_ && opened_ - story < capacity_;
  return there ? &ring_[(story - 1) % capacity_] : nullptr;
}

void DecisionLog::Close(uint64_t story, const Closing& closing) {
  ++totals_.requests;
  ++totals_.outcomes[static_cast<size_t>(closing.outcome)];
  if (closing.reason) ++totals_.reasons[static_cast<size_t>(*closing.reason)];
  totals_.prompt_tokens += static_cast<uint64_t>(std::max<int64_t>(closing.prompt_tokens, 0));
  totals_.completion_tokens += static_cast<uint64_t>(std::max<int64_t>(closing.completion_tokens, 0));
  if (closing.cached_tokens >= 0) {
    totals_.cached_tokens += static_cast<uint64_t>(closing.cached_tokens);
    totals_.predicted_cached_tokens += static_cast<uint64_t>(closing.predicted_cached_tokens);
  }
  DecisionRecord* record = Edit(story);
  if (record == nullptr) return;
  record->complete = true;
  record->outcome = closing.outcome;
  record->prompt_tokens = closing.prompt_tokens;
  record->cached_tokens = closing.cached_tokens;
  record->completion_tokens = closing.completion_tokens;
  record->total = closing.total;
}

std::optional<DecisionRecord> DecisionLog::FindById(RequestId id) const {
  for (size_t i = 1; i <= ring_.size(); ++i) {
    const DecisionRecord& record = ring_[(opened_ - i) % capacity_];
    if (record.id == id) return record;
  }
  return std::nullopt;
}

std::optional<DecisionRecord> DecisionLog::Find(std::string_view id) const {
  for (size_t i = 1; i <= ring_.size(); ++i) {
    const DecisionRecord& record = ring_[(opened_ - i) % capacity_];
    if (record.name == id) return record;
  }
  RequestId number;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number.value);
  if (error != std::errc() || end != id.data() + id.size()) return std::nullopt;
  return FindById(number);
}

std::vector<DecisionRecord> DecisionLog::Recent(size_t limit) const {
  std::vector<DecisionRecord> newest;
  const size_t count = std::min(limit, ring_.size());
  for (size_t i = 1; i <= count; ++i) newest.push_back(ring_[(opened_ - i) % capacity_]);
  return newest;
}

}  // namespace kvring::router
