#include "replica/engine/scheduler.h"

#include <algorithm>

#include "common/check.h"

namespace kvring::replica {
namespace {

/// Tokens of one sequence in a step: the budget, or what a pool that has room for the window has room for
/// beside it.
int32_t LongestChunk(int32_t budget, const BlockManager& blocks) {
  if (blocks.BlocksHeldAtMost(1) > blocks.total_blocks()) return budget;
  while (blocks.BlocksHeldAtMost(budget) > blocks.total_blocks()) --budget;
  return budget;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockManager& blocks)
    : options_(options), blocks_(blocks), max_chunk_(LongestChunk(options.max_batch_tokens, blocks)) {
  KVRING_CHECK(options.max_running > 0 && options.max_batch_tokens > options.max_running);
}

void Scheduler::Enqueue(Sequence& sequence) {
  waiting_.Enter(sequence);
  Wait(sequence);
}

void Scheduler::Wait(Sequence& sequence) {
  sequence.state = Sequence::State::kWaiting;
  waiting_tokens_ += sequence.length();
  waiting_.Insert(sequence);
}

void Scheduler::AddFork(Sequence& fork, Sequence& parent) {
  KVRING_CHECK(parent.slots > 1 && fork.table.held);
  parent.slots -= 1;
  used_slots_ -= 1;
  waiting_.Enter(fork);
  StartRunning(fork);
}

void Scheduler::Remove(Sequence& sequence) {
  if (sequence.state == Sequence::State::kFinished) return;
  if (sequence.state == Sequence::State::kWaiting) {
    waiting_.Erase(sequence);
    waiting_tokens_ -= sequence.length();
  } else {
    running_.erase(std::ranges::lower_bound(running_, &sequence, BySequenceRank()));
    used_slots_ -= sequence.slots;
    blocks_.Release(sequence.table);
  }
  waiting_.Leave(sequence);
  sequence.state = Sequence::State::kFinished;
}

const StepPlan& Scheduler::Plan(Instant now) {
  plan_.items.clear();
  plan_.copies.clear();
  plan_.admitted.clear();
  plan_.preemptions = 0;
  budget_ = options_.max_batch_tokens;
  blocks_.AdvanceTo(now);
  PlanDecodes();
  PlanPrefills();
  // What was preempted just now would be let in again, and the room it gave up is needed.
  if (plan_.preemptions == 0) PlanAdmissions(now);
  ++stats_.steps;
  return plan_;
}

void Scheduler::PlanDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->pending() == 1) Schedule(*running_[i], 1);
  }
}

void Scheduler::PlanPrefills() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    const int32_t pending = running_[i]->pending();
    if (pending > 1) Schedule(*running_[i], std::min({pending, budget_, max_chunk_}));
  }
}

bool Scheduler::Schedule(Sequence& sequence, int32_t tokens) {
  if (!MakeRoom(sequence, sequence.computed + tokens)) return false;
  plan_.items.push_back({&sequence, tokens});
  waiting_.Charge(sequence, tokens);
  budget_ -= tokens;
  return true;
}

bool Scheduler::MakeRoom(Sequence& sequence, int32_t end) {
  for (;;) {
    const BlockManager::Extension extension = blocks_.Extend(sequence.table, sequence.computed, end);
    if (extension.ok) {
      if (extension.copy.has_value()) plan_.copies.push_back(*extension.copy);
      return true;
    }
    if (running_.size() == 1 && GiveUpPins()) continue;
    if (plan_.preemptions == 0 && EveryoneLacksABlock()) ++stats_.deadlocks_broken;
    Sequence& victim = *running_.back();
    Preempt(victim);
    if (&victim == &sequence) return false;
  }
}

void Scheduler::Preempt(Sequence& victim) {
  running_.pop_back();
  used_slots_ -= victim.slots;
  blocks_.Release(victim.table);
  stats_.recomputed_tokens += victim.computed;
  victim.computed = 0;
  ++victim.preemptions;
  ++stats_.preemptions;
  ++plan_.preemptions;
  Unplan(victim);
  Wait(victim);
}

// A prefill under a window can need room after decodes of lower rank have been planned.
void Scheduler::Unplan(const Sequence& victim) {
  std::erase_if(plan_.items, [&](const ScheduledSequence& item) { return item.sequence == &victim; });
}

bool Scheduler::EveryoneLacksABlock() const {
  return blocks_.available_blocks() == 0 && std::ranges::all_of(running_, [&](const Sequence* s) {
           return static_cast<size_t>(blocks_.BlocksFor(s->computed + 1)) > s->table.blocks.size();
         });
}

bool Scheduler::GiveUpPins() {
  const int32_t pins = blocks_.Unpin();
  stats_.pins_given_up += pins;
  return pins > 0;
}

void Scheduler::PlanAdmissions(Instant now) {
  AdmitInOrder(now);
  if (running_.empty() && waiting_.size() > 0 && GiveUpPins()) AdmitInOrder(now);
}

void Scheduler::AdmitInOrder(Instant now) {
  blocked_.clear();
  size_t refused = 0;
  waiting_.Order(options_.max_running - used_slots_ + kMaxRefusedPerStep, candidates_);
  for (Sequence* sequence : candidates_) {
    if (budget_ <= 0 || refused >= kMaxRefusedPerStep) break;
    if (!std::ranges::all_of(blocked_, [&](const Sequence* b) { return MayBePassed(*b, now); })) break;
    const Admission admission = TryAdmit(*sequence);
    if (admission == Admission::kAdmitted) {
      CountBypass();
      Schedule(*sequence, std::min({sequence->pending(), budget_, max_chunk_}));
      continue;
    }
    ++refused;
    if (admission == Admission::kNoRoom) MarkBlocked(*sequence, now);
    if (admission == Admission::kComputedByAnother) ++stats_.shared_waits;
    if (options_.max_bypasses == 0) break;
  }
}

Scheduler::Admission Scheduler::TryAdmit(Sequence& sequence) {
  if (used_slots_ + sequence.slots > options_.max_running) return Admission::kNoRoom;
  const bool rows_wanted = sequence.prompt_rows_done < sequence.prompt_tokens;
  const int32_t may_be_cached = rows_wanted ? sequence.prompt_rows_done : sequence.length() - 1;
  if (blocks_.IsBeingComputed(sequence.table, sequence.tokens, may_be_cached))
    return Admission::kComputedByAnother;
  const BlockManager::AdmitRequest request{
      .tokens = sequence.tokens,
      .max_cached_tokens = may_be_cached,
      // Room for every running sequence to begin one more block: else the newcomer would be preempted at
      // once.
      .headroom_blocks = static_cast<int32_t>(running_.size()),
      .max_blocks = blocks_.BlocksHeldAtMost(max_chunk_),
      .readmission = sequence.admitted_once,
  };
  const std::optional<int32_t> cached = blocks_.Admit(sequence.table, request);
  if (!cached.has_value()) return Admission::kNoRoom;
  waiting_.Erase(sequence);
  waiting_tokens_ -= sequence.length();
  sequence.computed = *cached;
  sequence.cached_tokens = *cached;
  const bool all_but_last = may_be_cached == sequence.length() - 1;
  if (const auto copy =
          all_but_last ? blocks_.CopyOfLastBlock(sequence.table, sequence.tokens) : std::nullopt) {
    plan_.copies.push_back(*copy);
    sequence.computed = may_be_cached;
  }
  sequence.blocked = false;
  sequence.bypasses = 0;
  if (!sequence.admitted_once) plan_.admitted.push_back(&sequence);
  sequence.admitted_once = true;
  StartRunning(sequence);
  return Admission::kAdmitted;
}

void Scheduler::StartRunning(Sequence& sequence) {
  sequence.state = Sequence::State::kRunning;
  running_.insert(std::ranges::lower_bound(running_, &sequence, BySequenceRank()), &sequence);
  used_slots_ += sequence.slots;
}

void Scheduler::MarkBlocked(Sequence& sequence, Instant now) {
  if (!sequence.blocked) {
    sequence.blocked = true;
    sequence.blocked_since = now;
  }
  blocked_.push_back(&sequence);
}

bool Scheduler::MayBePassed(const Sequence& sequence, Instant now) const {
  if (sequence.preemptions > 0) return false;  // newcomers would take its room, and be preempted in turn
  return sequence.bypasses < options_.max_bypasses && now - sequence.blocked_since < options_.max_bypass_time;
}

void Scheduler::CountBypass() {
  for (Sequence* passed : blocked_) ++passed->bypasses;
  stats_.bypasses += blocked_.empty() ? 0 : 1;
}

int64_t Scheduler::pending_prefill_tokens() const {
  int64_t tokens = waiting_tokens_;
  for (const Sequence* sequence : running_) {
    if (sequence->pending() > 1) tokens += sequence->pending();
  }
  return tokens;
}

}  // namespace kvring::replica
