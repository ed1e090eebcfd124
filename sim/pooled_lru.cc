#include "sim/pooled_lru.h"

#include <list>

#include "absl/container/flat_hash_map.h"

namespace kvring::sim {
namespace {

class Lru {
 public:
  explicit Lru(size_t capacity) : capacity_(capacity) {}

  bool Touch(uint64_t block) {
    const auto it = at_.find(block);
    if (it == at_.end()) return false;
    order_.splice(order_.begin(), order_, it->second);
    return true;
  }
  void Put(uint64_t block) {
    if (Touch(block)) return;
    order_.push_front(block);
    at_[block] = order_.begin();
    if (order_.size() <= capacity_) return;
    at_.erase(order_.back());
    order_.pop_back();
  }

 private:
  size_t capacity_;
  std::list<uint64_t> order_;  // most recent first
  absl::flat_hash_map<uint64_t, std::list<uint64_t>::iterator> at_;
};

}  // namespace

double PooledLruHitRate(const Trace& trace, int64_t capacity_tokens) {
  Lru lru(static_cast<size_t>(capacity_tokens / trace.block_tokens));
  int64_t hit = 0, prompt = 0;
  for (const TraceRequest& request : trace.requests) {
    bool found = true;
    for (const PromptSpan& span : trace.spans_of(request)) {
      prompt += span.tokens;
      found = found && lru.Touch(span.content);
      if (found) hit += span.tokens;
    }
    // Last block first: so the leaves of a chain go before what they hang on.
    const auto spans = trace.spans_of(request);
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) lru.Put(span->content);
  }
  return prompt == 0 ? 0 : static_cast<double>(hit) / static_cast<double>(prompt);
}

}  // namespace kvring::sim
