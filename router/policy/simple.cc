#include "router/policy/simple.h"

namespace kvring::router {

Pick RoundRobin::Choose(const PickInput& input, Random&) {
  credits_.resize(std::max<size_t>(credits_.size(), input.fleet.slot_count()));
  double total = 0;
  uint32_t best = input.eligible.front();
  for (const uint32_t slot : input.eligible) {
    const Replica& replica = *input.fleet.at(slot);
    Credit& credit = credits_[slot];
    if (credit.id != replica.id) credit = {replica.id, 0};
    credit.value += replica.weight;
    total += replica.weight;
    if (credit.value > credits_[best].value) best = slot;
  }
  credits_[best].value -= total;
  return {.slot = best, .reason = Reason::kCold};
}

Pick RandomChoice::Choose(const PickInput& input, Random& random) {
  double total = 0;
  for (const uint32_t slot : input.eligible) total += input.fleet.at(slot)->weight;
  double left = random.Uniform() * total;
  for (const uint32_t slot : input.eligible) {
    left -= input.fleet.at(slot)->weight;
    if (left < 0) return {.slot = slot, .reason = Reason::kCold};
  }
  return {.slot = input.eligible.back(), .reason = Reason::kCold};
}

}  // namespace kvring::router
