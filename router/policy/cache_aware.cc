#include "router/policy/cache_aware.h"

#include <algorithm>

namespace kvring::router {
namespace {

constexpr size_t kScoreAllUpTo = 16;
constexpr size_t kHoldersSeen = 64;
constexpr double kDecodeWeight = 0.5;
constexpr double kOutputWeight = 0.2;

double BranchShare(size_t replicas) { return 1.0 / static_cast<double>(replicas); }

}  // namespace

void CacheAware::Add(uint32_t slot) {
  if (std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) slots_.push_back(slot);
}

// Of the two deepest levels, the two holders with the least pending prefill each.
void CacheAware::AddHolders(const PickInput& input, Random& random) {
  input.index.Holders(input.path, kHoldersSeen, holders_);
  std::erase_if(holders_, [&](const ResidencyIndex::Depth& holder) {
    return !std::binary_search(input.eligible.begin(), input.eligible.end(), holder.replica);
  });
  std::stable_sort(holders_.begin(), holders_.end(), [](const auto& a, const auto& b) { return a.blocks > b.blocks; });
  auto from = holders_.begin();
  for (int level = 0; level < 2 && from != holders_.end(); ++level) {
    const auto to = std::find_if(from, holders_.end(), [&](const auto& h) { return h.blocks != from->blocks; });
    std::rotate(from, from + static_cast<std::ptrdiff_t>(random.Below(static_cast<uint64_t>(to - from))), to);
    const auto least = [&](const auto& a, const auto& b) {
      return input.fleet.at(a.replica)->PendingTokens(input.now) < input.fleet.at(b.replica)->PendingTokens(input.now);
    };
    const auto taken = from + std::min<std::ptrdiff_t>(2, to - from);
    std::partial_sort(from, taken, to, least);
    for (auto it = from; it != taken; ++it) Add(it->replica);
    from = to;
  }
}

void CacheAware::Gather(const PickInput& input, uint64_t branch_key, Random& random) {
  slots_.clear();
  homes_.clear();
  ring_.Sync(input.fleet);
  ring_.Walk(branch_key, input.eligible, 2, [&](uint32_t slot) {
    homes_.push_back(slot);
    return false;
  });
  if (input.eligible.size() <= kScoreAllUpTo) {
    for (const uint32_t home : homes_) Add(home);
    for (const uint32_t slot : input.eligible) Add(slot);
    return;
  }
  if (input.session_slot) Add(*input.session_slot);
  AddHolders(input, random);
  for (const uint32_t home : homes_) Add(home);
  for (int i = 0; i < 2; ++i) Add(input.eligible[random.Below(input.eligible.size())]);
}

Candidate CacheAware::Score(const PickInput& input, uint32_t slot) const {
  const Replica& replica = *input.fleet.at(slot);
  const double rate = input.fleet.PrefillRateOf(replica, input.now);
  Candidate c{.replica = replica.id, .matched_tokens = input.MatchedTokens(slot)};
  const double u = static_cast<double>(input.prompt_tokens - c.matched_tokens);
  const double decoding = replica.Decoding(input.now);
  const double q = std::max(replica.Requests(input.now) - decoding, 0.0) + kDecodeWeight * decoding;
  c.own_s = (static_cast<double>(replica.PendingTokens(input.now)) + u) / rate;
  c.ext_s = u / rate * q;
  c.dec_s = kOutputWeight * replica.decode_step_s * decoding * input.mean_output_tokens;
  c.cost_s = c.own_s + c.ext_s + c.dec_s;
  return c;
}

Reason CacheAware::Explain(const PickInput& input, const Candidate& chosen, uint32_t slot) const {
  int64_t deepest = 0;
  for (const uint32_t other : slots_) deepest = std::max(deepest, input.MatchedTokens(other));
  if (chosen.matched_tokens > 0 && chosen.matched_tokens == deepest) {
    return input.session_slot == slot ? Reason::kSession : Reason::kPrefix;
  }
  if (deepest > chosen.matched_tokens) return Reason::kSpill;
  if (std::find(homes_.begin(), homes_.end(), slot) != homes_.end()) return Reason::kRing;
  return Reason::kLeastLoad;
}

Pick CacheAware::Choose(const PickInput& input, Random& random) {
  sketch_.Count(input.prompt);
  Gather(input, sketch_.BranchKey(input.prompt, BranchShare(input.eligible.size())), random);
  Pick pick;
  size_t best = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    pick.candidates.push_back(Score(input, slots_[i]));
    if (pick.candidates[i].cost_s < pick.candidates[best].cost_s) best = i;
  }
  pick.slot = slots_[best];
  pick.reason = Explain(input, pick.candidates[best], pick.slot);
  std::swap(pick.candidates[0], pick.candidates[best]);
  return pick;
}

}  // namespace kvring::router
