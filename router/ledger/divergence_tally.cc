#include "router/ledger/divergence_tally.h"

#include <algorithm>

#include "common/block_hash.h"

namespace kvring::router {
namespace {

void Count(DivergencePlace& place, const Divergence& divergence, std::string_view where,
           int64_t lost_tokens) {
  place.least_offset = place.count == 0 ? divergence.offset : std::min(place.least_offset, divergence.offset);
  place.most_offset = std::max(place.most_offset, divergence.offset);
  place.last = divergence;
  place.where = where;
  place.lost_tokens += lost_tokens;
  ++place.count;
}

}  // namespace

DivergencePlace& DivergenceTally::Add(const Divergence& divergence, std::string_view prompt,
                                      std::string_view where, int64_t lost_tokens) {
  const size_t leading = LeadingEnd(prompt);
  const size_t begin = divergence.now.begin;
  const bool moves = divergence.cause == DivergenceClass::kPromptHeader ||
                     divergence.cause == DivergenceClass::kHistoryTruncated;
  const bool authored = !moves && (begin < leading || leading == 0);
  const uint64_t front = HashName(prompt.substr(0, std::min(begin, leading)));
  const Key key{divergence.cause, divergence.place.part, authored ? begin - divergence.place.record_begin : 0,
                front};
  if (places_.size() >= kMaxPlaces && !places_.contains(key)) {
    Count(beyond_, divergence, where, lost_tokens);
    return beyond_;
  }
  DivergencePlace& place = places_[key];
  Count(place, divergence, where, lost_tokens);
  return place;
}

std::vector<DivergencePlace> DivergenceTally::Alarms(int64_t alarm_after) const {
  std::vector<DivergencePlace> alarms;
  for (const auto& [key, place] : places_)
    if (place.count >= alarm_after) alarms.push_back(place);
  std::ranges::stable_sort(alarms, std::ranges::greater{}, &DivergencePlace::lost_tokens);
  return alarms;
}

}  // namespace kvring::router
