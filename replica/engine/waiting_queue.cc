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
  ++size_;
  if (!sequence.admitted_once) return InsertFresh(level, sequence);
  level.returned.insert(&sequence);
}

void WaitingQueue::InsertFresh(Level& level, Sequence& sequence) {
  Fresh& fresh = level.fresh.try_emplace(sequence.tenant, Fresh{{}, level.turns.end()}).first->second;
  fresh.queue.insert(&sequence);
  RenewTurn(level, sequence.tenant, fresh);
}

void WaitingQueue::Erase(Sequence& sequence) {
  const auto at = levels_.find(sequence.rank.priority);
  Level& level = at->second;
  --size_;
  if (level.returned.erase(&sequence) == 0) EraseFresh(level, sequence);
  if (level.returned.empty() && level.fresh.empty()) levels_.erase(at);
}

void WaitingQueue::EraseFresh(Level& level, Sequence& sequence) {
  const auto at = level.fresh.find(sequence.tenant);
  Fresh& fresh = at->second;
  fresh.queue.erase(&sequence);
  if (!fresh.queue.empty()) return RenewTurn(level, sequence.tenant, fresh);
  level.turns.erase(fresh.turn);
  level.fresh.erase(at);
}

void WaitingQueue::RenewTurn(Level& level, TenantId tenant, Fresh& fresh) {
  if (fresh.turn != level.turns.end()) level.turns.erase(fresh.turn);
  fresh.turn = level.turns.insert({present_.at(tenant).served, (*fresh.queue.begin())->rank, tenant}).first;
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
  struct Place {
    int64_t served;
    Queue::const_iterator next;
    Queue::const_iterator end;
  };
  const auto later = [](const Place& a, const Place& b) {
    return a.served != b.served ? a.served > b.served : (*b.next)->rank < (*a.next)->rank;
  };
  std::priority_queue<Place, std::vector<Place>, decltype(later)> places(later);
  // Of n places no more than the first n tenants can have one.
  auto turn = level.turns.begin();
  for (size_t i = out.size(); i < limit && turn != level.turns.end(); ++i, ++turn) {
    const Queue& queue = level.fresh.at(turn->tenant).queue;
    places.push({turn->served, queue.begin(), queue.end()});
  }
  while (!places.empty() && out.size() < limit) {
    Place place = places.top();
    places.pop();
    out.push_back(*place.next);
    place.served += (*place.next)->length();
    if (++place.next != place.end) places.push(place);
  }
}

void WaitingQueue::Charge(const Sequence& sequence, int32_t tokens) {
  const bool output = sequence.computed >= sequence.prompt_tokens;
  present_.at(sequence.tenant).served += tokens * (output ? kOutputWeight : 1);
  for (auto& [priority, level] : levels_) {
    const auto fresh = level.fresh.find(sequence.tenant);
    if (fresh != level.fresh.end()) RenewTurn(level, sequence.tenant, fresh->second);
  }
}

}  // namespace kvring::replica
