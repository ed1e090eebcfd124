#include "router/policy/cache_aware.h"

#include <algorithm>

namespace kvring::router {
namespace {

constexpr size_t kScoreAllUpTo = 16;
constexpr size_t kHoldersSeen = 32;
constexpr size_t kHomes = 2;
constexpr size_t kHomesSeen = 16;
constexpr double kDecodeWeight = 0.5;
constexpr double kOutputWeight = 0.2;
constexpr double kPromiseWindow = 128;  // requests per replica that a promise is kept for
constexpr double kBranchShareMemory = 0.01;
constexpr double kSessionNoiseSeconds = 0.05;
constexpr double kSlowestReleaseSeconds = 60;  // to free a whole cache, where nothing is known

double Queue(const PickInput& input, const Replica& replica) {
  const double decoding = replica.Decoding(input.now);
  return std::max(replica.Requests(input.now) - decoding, 0.0) + kDecodeWeight * decoding;
}

// Share of u that needs room which is not free.
double EvictingShare(const PickInput& input, const Replica& replica, double u) {
  if (replica.kv_tokens <= 0 || u <= 0) return 0;
  const double held =
      static_cast<double>(input.belief.index().held_bytes(replica.slot)) / input.bytes_per_token;
  const double room = std::max(static_cast<double>(replica.kv_tokens) - held, 0.0);
  return 1 - std::min(room / u, 1.0);
}

// Seconds until the running requests have freed what the queue and this request need; only a fresh report
// knows.
double MemoryWait(const PickInput& input, const Replica& replica, double u) {
  if (replica.kv_tokens <= 0 || !replica.load_fresh(input.now)) return 0;
  const auto room = static_cast<double>(replica.kv_tokens - replica.report.kv_used_tokens);
  const double need = u + input.mean_output_tokens + static_cast<double>(replica.load.pending_kv_tokens);
  const double least_rate = static_cast<double>(replica.kv_tokens) / kSlowestReleaseSeconds;
  return std::max(need - room, 0.0) / std::max(replica.release_rate, least_rate);
}

}  // namespace

void CacheAware::Add(uint32_t slot) {
  if (std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) slots_.push_back(slot);
}

// The key's first members clockwise with room for what they are promised.
void CacheAware::AddHomes(const PickInput& input) {
  ring_.Sync(input.fleet);
  homes_.clear();
  const double share = 1.0 / static_cast<double>(input.eligible.size());
  ring_.Walk(sketch_.BranchKey(input.prompt, share), input.eligible, kHomesSeen, [&](uint32_t slot) {
    if (PromiseOf(input, slot) <= bound_) homes_.push_back(slot);
    return homes_.size() == kHomes;
  });
  for (const uint32_t home : homes_) Add(home);
}

// Of the two deepest levels, the two holders with the least pending prefill each.
void CacheAware::AddHolders(const PickInput& input, Random& random) {
  input.belief.index().Holders(input.path, kHoldersSeen, holders_);
  std::erase_if(holders_,
                [&](const ResidencyIndex::Depth& holder) { return !input.IsEligible(holder.replica); });
  std::stable_sort(holders_.begin(), holders_.end(),
                   [](const auto& a, const auto& b) { return a.blocks > b.blocks; });
  const auto lighter = [&](const auto& a, const auto& b) {
    return input.fleet.at(a.replica)->PendingTokens(input.now) <
           input.fleet.at(b.replica)->PendingTokens(input.now);
  };
  auto from = holders_.begin();
  for (int level = 0; level < 2 && from != holders_.end(); ++level) {
    const auto to =
        std::find_if(from, holders_.end(), [&](const auto& h) { return h.blocks != from->blocks; });
    std::rotate(from, from + static_cast<std::ptrdiff_t>(random.Below(static_cast<uint64_t>(to - from))), to);
    const auto taken = from + std::min<std::ptrdiff_t>(2, to - from);
    std::partial_sort(from, taken, to, lighter);
    for (auto it = from; it != taken; ++it) Add(it->replica);
    from = to;
  }
}

// The session's last replica comes first, then homes: a tie goes to them and not to a place in the list.
void CacheAware::Gather(const PickInput& input, Random& random) {
  slots_.clear();
  if (input.session_slot) Add(*input.session_slot);
  AddHomes(input);
  if (input.eligible.size() <= kScoreAllUpTo) {
    const size_t turn = random.Below(input.eligible.size());
    for (size_t i = 0; i < input.eligible.size(); ++i)
      Add(input.eligible[(turn + i) % input.eligible.size()]);
  } else {
    AddHolders(input, random);
    for (int i = 0; i < 2; ++i) Add(input.eligible[random.Below(input.eligible.size())]);
  }
  mean_queue_ = 0;
  for (const uint32_t slot : slots_) mean_queue_ += Queue(input, *input.fleet.at(slot));
  mean_queue_ /= static_cast<double>(slots_.size());
}

// What a replica is taken to hold of the prompt: what the index knows, and at the session's last replica at
// least the session's prompt of then, which this one most likely continues: the index sees nothing below a
// whole block.
int64_t CacheAware::HeldTokens(const PickInput& input, uint32_t slot, int64_t matched) {
  if (input.session_slot != slot) return matched;
  return std::max(matched, std::min(input.session_tokens, input.prompt_tokens - 1));
}

Candidate CacheAware::Score(const PickInput& input, uint32_t slot) const {
  const Replica& replica = *input.fleet.at(slot);
  const double rate = input.fleet.PrefillRateOf(replica);
  Candidate c{.replica = replica.id, .matched_tokens = input.MatchedTokens(slot)};
  const auto u = static_cast<double>(input.prompt_tokens - HeldTokens(input, slot, c.matched_tokens));
  const double q = (Queue(input, replica) + mean_queue_) / 2;
  const double e = EvictingShare(input, replica, u);
  c.own_s = replica.BacklogSeconds(input.now, rate) + u / rate;
  c.ext_s = u / rate * (q * (1 + e) + e);
  c.mem_s = MemoryWait(input, replica, u);
  c.dec_s = kOutputWeight * input.fleet.decode_model().SecondsPerSequence() * replica.Decoding(input.now) *
            input.mean_output_tokens;
  c.cost_s = c.own_s + c.ext_s + c.mem_s + c.dec_s;
  return c;
}

// A branch goes to the cheapest of those below the bound (if there are none among the candidates, to the
// least promised), unless that costs more than a prefill of the whole prompt: then what keeps it away is
// congestion, not a missing copy.
size_t CacheAware::Cheapest(const PickInput& input, const std::vector<Candidate>& candidates,
                            bool branch) const {
  size_t any = 0, bounded = candidates.size(), least_promised = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].cost_s < candidates[any].cost_s) any = i;
    const double promise = PromiseOf(input, slots_[i]);
    if (promise < PromiseOf(input, slots_[least_promised])) least_promised = i;
    if (promise > bound_) continue;
    if (bounded == candidates.size() || candidates[i].cost_s < candidates[bounded].cost_s) bounded = i;
  }
  if (!branch) return any;
  if (bounded == candidates.size()) bounded = least_promised;
  const double rate = input.fleet.PrefillRateOf(*input.fleet.at(slots_[any]));
  const double whole_prompt_s = static_cast<double>(input.prompt_tokens) / rate * (1 + mean_queue_);
  return candidates[bounded].cost_s - candidates[any].cost_s <= whole_prompt_s ? bounded : any;
}

// A session moves only for a gain that is worth a prefill of its prompt, and more than what timing noise
// makes of an idle fleet.
bool CacheAware::StaysWithSession(const PickInput& input, const Candidate& home,
                                  const Candidate& best) const {
  const double rate = input.fleet.PrefillRateOf(*input.fleet.at(slots_[0]));
  const double whole_prompt_s = static_cast<double>(input.prompt_tokens) / rate * (1 + mean_queue_);
  return home.cost_s - best.cost_s <= std::max(whole_prompt_s, kSessionNoiseSeconds);
}

Reason CacheAware::Explain(const PickInput& input, const std::vector<Candidate>& candidates,
                           size_t chosen) const {
  int64_t deepest = 0;
  for (const Candidate& c : candidates) deepest = std::max(deepest, c.matched_tokens);
  const int64_t matched = candidates[chosen].matched_tokens;
  if (matched < deepest) return Reason::kSpill;
  if (input.session_slot == slots_[chosen]) return Reason::kSession;
  if (matched > 0) return Reason::kPrefix;
  if (std::find(homes_.begin(), homes_.end(), slots_[chosen]) != homes_.end()) return Reason::kRing;
  return Reason::kLeastLoad;
}

// ---- promised load ----

double CacheAware::PromiseOf(const PickInput& input, uint32_t slot) const {
  const Replica& replica = *input.fleet.at(slot);
  if (promised_[slot].id != replica.id) return 0;
  return promised_[slot].load * replica.slowness.value() / replica.weight;
}

// The mean is taken over those that serve now; in a large fleet once per as many decisions as it has
// members, so it costs a decision O(1) and is at most 1/128 of the window old.
void CacheAware::RefreshBound(const PickInput& input) {
  promised_.resize(std::max<size_t>(promised_.size(), input.fleet.slot_count()));
  if (bound_uses_left_ > 0 && bound_members_ == input.eligible.size()) {
    --bound_uses_left_;
    return;
  }
  double sum = 0, weights = 0;
  for (const uint32_t slot : input.eligible) {
    sum += PromiseOf(input, slot) * input.fleet.at(slot)->weight;
    weights += input.fleet.at(slot)->weight;
  }
  bound_members_ = input.eligible.size();
  bound_uses_left_ = bound_members_ <= kScoreAllUpTo ? 0 : bound_members_;
  bound_ = sum / weights + BranchLoad() / 2;
}

void CacheAware::Promise(const PickInput& input, uint32_t slot, bool branch) {
  const ReplicaId id = input.fleet.at(slot)->id;
  if (promised_[slot].id != id) promised_[slot] = {id, 0};
  unit_ *= 1 + 1 / (kPromiseWindow * static_cast<double>(input.eligible.size()));
  branch_share_ += kBranchShareMemory * ((branch ? 1.0 : 0.0) - branch_share_);
  branch_share_ = std::max(branch_share_, kBranchShareMemory);
  promised_[slot].load += branch ? BranchLoad() : unit_;
  constexpr double kLargestUnit = 1e100;
  if (unit_ < kLargestUnit) return;
  for (Promised& p : promised_) p.load /= kLargestUnit;
  bound_ /= kLargestUnit;
  unit_ = 1;
}

// What lies behind the last whole block of an engine is not kept: a next turn leaves the one before there.
bool CacheAware::GoesOn(const PickInput& input) {
  const int32_t block_tokens = input.fleet.at(input.eligible.front())->block_size;
  const auto slack = static_cast<uint32_t>(block_tokens) / static_cast<uint32_t>(kIndexBlockTokens);
  return input.belief.index().Continues(input.path, input.prompt, slack);
}

Pick CacheAware::Choose(const PickInput& input, Random& random) {
  sketch_.Count(input.prompt);
  RefreshBound(input);
  Gather(input, random);
  const bool session_goes_on = input.session_slot && input.session_tokens > 0;
  const bool branch = !session_goes_on && !GoesOn(input);
  Pick pick;
  pick.candidates.reserve(slots_.size());
  for (const uint32_t slot : slots_) pick.candidates.push_back(Score(input, slot));
  size_t best = Cheapest(input, pick.candidates, branch);
  if (session_goes_on && StaysWithSession(input, pick.candidates[0], pick.candidates[best])) best = 0;
  pick.slot = slots_[best];
  pick.reason = Explain(input, pick.candidates, best);
  Promise(input, pick.slot, branch);
  std::swap(pick.candidates[0], pick.candidates[best]);
  return pick;
}

}  // namespace kvring::router
