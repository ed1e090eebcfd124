#include "router/policy/admission_queue.h"

#include <utility>
#include <vector>

namespace kvring::router {

std::optional<RequestId> AdmissionQueue::Add(const QueueTicket& ticket, size_t max_length) {
  if (max_length == 0) return ticket.id;
  Line& line = lines_[ticket.pool];
  std::optional<RequestId> shed;
  if (line.size() >= max_length) {
    const QueueTicket last = line.rbegin()->second;
    if (last.rank < ticket.rank) return ticket.id;
    by_time_.erase({last.until, last.rank.arrival});
    line.erase(last.rank);
    shed = last.id;
  }
  line.emplace(ticket.rank, ticket);
  by_time_.emplace(std::pair(ticket.until, ticket.rank.arrival), ticket);
  return shed;
}

void AdmissionQueue::Remove(const QueueTicket& ticket) {
  const auto line = lines_.find(ticket.pool);
  if (line == lines_.end()) return;
  line->second.erase(ticket.rank);
  if (line->second.empty()) lines_.erase(line);
  by_time_.erase({ticket.until, ticket.rank.arrival});
}

bool AdmissionQueue::AnyBefore(const std::string& pool, QueueRank rank) const {
  const auto line = lines_.find(pool);
  return line != lines_.end() && line->second.begin()->first < rank;
}

void AdmissionQueue::Offer(const std::function<Offered(RequestId)>& offer) {
  struct Cursor {
    Line* line;
    Line::iterator next;
  };
  std::vector<Cursor> cursors;
  for (auto& [pool, line] : lines_) cursors.push_back({&line, line.begin()});
  while (!cursors.empty()) {
    size_t first = 0;
    for (size_t i = 1; i < cursors.size(); ++i) {
      if (cursors[i].next->first < cursors[first].next->first) first = i;
    }
    Cursor& cursor = cursors[first];
    const Offered answer = offer(cursor.next->second.id);
    if (answer == Offered::kTaken) {
      const QueueTicket& ticket = cursor.next->second;
      by_time_.erase({ticket.until, ticket.rank.arrival});
      cursor.next = cursor.line->erase(cursor.next);
    } else {
      ++cursor.next;
    }
    if (answer == Offered::kNotByAnyOfPool || cursor.next == cursor.line->end())
      cursors.erase(cursors.begin() + static_cast<std::ptrdiff_t>(first));
  }
  std::erase_if(lines_, [](const auto& entry) { return entry.second.empty(); });
}

std::optional<RequestId> AdmissionQueue::TakeExpired(Instant now) {
  if (by_time_.empty() || by_time_.begin()->first.first > now) return std::nullopt;
  const QueueTicket ticket = by_time_.begin()->second;
  Remove(ticket);
  return ticket.id;
}

}  // namespace kvring::router
