#include "replica/engine/waiting_queue.h"

#include <algorithm>
#include <queue>

namespace kvring::replica {
namespace {

/// Tenants without sequences whose served tokens are remembered, so that leaving does not wash them off.
constexpr size_t kMaxRemembered = 1024;

}  // namespace

int64_t WaitingQueue::LeastServed() const {
  if (present_.empty()) return last_to_leave_;
  const auto by_served = [](const auto& a, const auto& b) { return a.second.served < b.second.served; };
  return std::ranges::min_element(present_, by_served)->second.served;
}

void WaitingQueue::Enter(const Sequence& sequence) {
  auto tenant = present_.find(sequence.tenant);
  if (tenant == present_.end()) {
    int64_t served = LeastServed();
    if (const auto before = served_before_.find(sequence.tenant); before != served_before_.end()) {
      served = std::max(served, before->second);
      served_before_.erase(before);
    }
    tenant = present_.emplace(sequence.tenant, Tenant{.served = served}).first;
  }
  ++tenant->second.sequences;
}

void WaitingQueue::Leave(const Sequence& sequence) {
  const auto tenant = present_.find(sequence.tenant);
  if (--tenant->second.sequences > 0) return;
  last_to_leave_ = tenant->second.served;
  if (served_before_.size() >= kMaxRemembered) served_before_.clear();
  served_before_[sequence.tenant] = last_to_leave_;
  present_.erase(tenant);
}

void WaitingQueue::Insert(Sequence& sequence) {
  Level& level = levels_[sequence.rank.priority];
  (sequence.admitted_once ? level.returned : level.fresh[sequence.tenant]).insert(&sequence);
  ++size_;
}

void WaitingQueue::Erase(Sequence& sequence) {
  const auto at = levels_.find(sequence.rank.priority);
  Level& level = at->second;
  if (level.returned.erase(&sequence) == 0) {
    const auto queue = level.fresh.find(sequence.tenant);
    queue->second.erase(&sequence);
    if (queue->second.empty()) level.fresh.erase(queue);
  }
  if (level.returned.empty() && level.fresh.empty()) levels_.erase(at);
  --size_;
}

void WaitingQueue::Order(size_t limit, std::vector<Sequence*>& out) const {
  out.clear();
  for (const auto& [priority, level] : levels_) {
    for (auto next = level.returned.begin(); next != level.returned.end() && out.size() < limit; ++next)
      out.push_back(*next);
    OrderFresh(level, limit, out);
  }
}

void WaitingQueue::OrderFresh(const Level& level, size_t limit, std::vector<Sequence*>& out) const {
  struct Turn {
    int64_t served;
    Queue::const_iterator next;
    Queue::const_iterator end;
  };
  const auto later = [](const Turn& a, const Turn& b) {
    return a.served != b.served ? a.served > b.served : BySequenceRank()(*b.next, *a.next);
  };
  std::priority_queue<Turn, std::vector<Turn>, decltype(later)> turns(later);
  for (const auto& [tenant, queue] : level.fresh)
    turns.push({present_.at(tenant).served, queue.begin(), queue.end()});
  while (!turns.empty() && out.size() < limit) {
    Turn turn = turns.top();
    turns.pop();
    out.push_back(*turn.next);
    turn.served += (*turn.next)->length();
    if (++turn.next != turn.end) turns.push(turn);
  }
}

void WaitingQueue::Charge(const Sequence& sequence, int32_t tokens) {
  const bool output = sequence.computed >= sequence.prompt_tokens;
  present_.at(sequence.tenant).served += tokens * (output ? kOutputWeight : 1);
}

}  // namespace kvring::replica
