// Router: requests that wait until a replica has room.
#include <algorithm>

#include "router/router_impl.h"

namespace kvring::router {
namespace {
constexpr Duration kLeastRetryAfter = std::chrono::seconds(1);
}  // namespace

void Router::Impl::Wait(const RequestView& view, ActiveRequest& active, Instant now) {
  Instant until = now + config_.admission.queue_timeout;
  if (view.deadline) until = std::min(until, *view.deadline);
  active.ticket =
      QueueTicket{.pool = active.model, .rank = RankOf(view, active), .id = view.id, .until = until};
  active.decision.queued = true;
  Touch();
  const std::optional<RequestId> shed = queue_.Add(*active.ticket, config_.admission.queue_length);
  if (!shed) return;
  ++stats_.full;
  Find(*shed)->ticket.reset();
  if (*shed == view.id) return Refuse(active, Refusal::kQueueFull, now);
  shed_.push_back(*shed);
}

void Router::Impl::Refuse(ActiveRequest& active, Refusal refusal, Instant now) {
  active.decision = {.refusal = refusal, .retry_after = RetryAfter(active, now)};
}

// Until the first replica that only cools may be asked again.
Duration Router::Impl::RetryAfter(const ActiveRequest& active, Instant now) {
  const ReplicaTable::Pool& pool = table_.PoolOf(active.model, now);
  const Instant end = table_.CoolingEnd(pool.eligible, now);
  return std::max(end - now, kLeastRetryAfter);
}

// Busy replicas are 429; where all are gone, or were told to be left alone, there was no endpoint.
Refusal Router::Impl::ReasonOfExpiry(const ActiveRequest& active, Instant now) {
  const ReplicaTable::Pool& pool = table_.PoolOf(active.model, now);
  return table_.CoolingEnd(pool.eligible, now) > now || pool.eligible.empty() ? Refusal::kNoEndpoints
                                                                              : Refusal::kQueueTimeout;
}

Released Router::Impl::Leave(RequestId id, Refusal refusal, Instant now) {
  ActiveRequest& active = *Find(id);
  active.ticket.reset();
  Refuse(active, refusal, now);
  Record(active);
  return {.id = id, .decision = active.decision, .listener = active.listener};
}

std::vector<Released> Router::Impl::TakeReady(Instant now) {
  may_release_ = false;
  std::vector<Released> released;
  for (const RequestId id : std::exchange(shed_, {})) released.push_back(Leave(id, Refusal::kQueueFull, now));
  while (const std::optional<RequestId> id = queue_.TakeExpired(now)) {
    const Refusal refusal = ReasonOfExpiry(*Find(*id), now);
    ++(refusal == Refusal::kQueueTimeout ? stats_.timed_out : stats_.no_endpoints);
    released.push_back(Leave(*id, refusal, now));
  }
  queue_.Offer([&](RequestId id) {
    ActiveRequest& active = *Find(id);
    const Choices choices = Survey(active, now);
    if (choices.none()) {
      return active.excluded.empty() ? AdmissionQueue::Offered::kNotByAnyOfPool
                                     : AdmissionQueue::Offered::kNotByThis;
    }
    active.ticket.reset();
    Choose(active, choices, now);
    OnDispatch(id, now);
    Record(active);
    ++stats_.served;
    released.push_back({.id = id, .decision = active.decision, .listener = active.listener});
    return AdmissionQueue::Offered::kTaken;
  });
  return released;
}

QueueStats Router::Impl::queue_stats() const {
  QueueStats stats = stats_;
  stats.waiting = queue_.size();
  return stats;
}

}  // namespace kvring::router
