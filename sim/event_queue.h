// EventQueue: what happens next in virtual time. Events of the same instant come in the order in which they
// were pushed, so a run is the same every time. Pure.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "common/instant.h"

namespace kvring::sim {

template <class Payload>
class EventQueue {
 public:
  struct Event {
    Instant at;
    uint64_t order;
    Payload payload;
  };

  void Push(Instant at, Payload payload) { events_.push({at, next_order_++, payload}); }
  /// Must not be empty.
  Event Pop() {
    Event event = events_.top();
    events_.pop();
    return event;
  }
  bool empty() const { return events_.empty(); }
  /// When the next one is due. Must not be empty.
  Instant next() const { return events_.top().at; }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t next_order_ = 0;
};

}  // namespace kvring::sim
