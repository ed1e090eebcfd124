#include "sim/queue_replica.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/fleet/prompt_key.h"

namespace kvring::sim {
namespace {

replica::BlockManagerOptions BlockOptions(const SimReplicaOptions& options, int32_t grain) {
  return {.num_blocks = static_cast<int32_t>(options.kv_tokens / options.block_tokens),
          .block_size = options.block_tokens / grain};
}

}  // namespace

int32_t QueueGrain(int32_t block_tokens) {
  constexpr auto kIds = static_cast<int32_t>(router::kIndexBlockTokens);
  return block_tokens % kIds == 0 ? block_tokens / kIds : 1;
}

QueueReplica::QueueReplica(const SimReplicaOptions& options)
    : options_(options),
      grain_(QueueGrain(options.block_tokens)),
      prefill_ids_per_second_(PrefillRate(options, grain_)),
      root_(replica::MakeCacheRoot(kSimIdentity)),
      blocks_(BlockOptions(options, grain_)) {}

absl::Status QueueReplica::Add(SimRequest request, Instant now) {
  const int64_t longest = int64_t{blocks_.total_blocks()} * options_.block_tokens;
  if (request.prompt.tokens + request.output_tokens > longest)
    return absl::OutOfRangeError(absl::StrCat("longer than the cache of ", longest, " tokens"));
  if (std::ssize(waiting_) >= options_.scheduler.max_waiting)
    return absl::ResourceExhaustedError("the waiting queue is full");
  auto sequence = std::make_unique<Sequence>();
  sequence->prompt_tokens = static_cast<int32_t>(request.prompt.tokens);
  request.prompt.Append({request.answer_content, request.output_tokens}, grain_);
  sequence->request = std::move(request);
  sequence->added = now;
  sequence->arrival = ++arrivals_;
  sequence->table.root = root_;
  waiting_tokens_ += sequence->length();
  waiting_.push_back(std::move(sequence));
  return absl::OkStatus();
}

// ---- a step begins ----

Duration QueueReplica::Step(Instant now) {
  blocks_.AdvanceTo(now);
  budget_ = options_.scheduler.max_batch_tokens;
  preempting_ = false;
  PlanDecodes();
  PlanPrefills();
  if (!preempting_) PlanAdmissions(now);
  return Begin(now);
}

void QueueReplica::PlanDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.decoding() && MakeRoom(sequence)) --budget_;
  }
}

void QueueReplica::PlanPrefills() {
  for (const Owned& sequence : running_) {
    sequence->chunk = 0;
    if (!sequence->decoding() && budget_ > 0) BeginChunk(*sequence);
  }
}

void QueueReplica::BeginChunk(Sequence& sequence) {
  sequence.chunk = std::min(sequence.length() - sequence.computed, budget_);
  budget_ -= sequence.chunk;
}

// For one more token; the last in line gives up its blocks where there is none.
bool QueueReplica::MakeRoom(Sequence& sequence) {
  if (sequence.computed % options_.block_tokens != 0) return true;
  const int32_t first = sequence.computed / grain_;
  while (!blocks_.Extend(sequence.table, first, IdsOf(sequence.computed + 1)).ok) {
    const bool itself = running_.back().get() == &sequence;
    PreemptLast();
    if (itself) return false;
  }
  return true;
}

void QueueReplica::PreemptLast() {
  Owned victim = std::move(running_.back());
  running_.pop_back();
  blocks_.Release(victim->table);
  victim->computed = 0;
  victim->chunk = 0;
  victim->preempted = true;
  waiting_tokens_ += victim->length();
  ++stats_.preemptions;
  preempting_ = true;
  waiting_.push_front(std::move(victim));
}

void QueueReplica::PlanAdmissions(Instant now) {
  std::vector<Sequence*> passed;
  const auto may_be_passed = [&](const Sequence* s) {
    return !s->preempted && s->bypasses < options_.scheduler.max_bypasses &&
           now - s->blocked_since < options_.scheduler.max_bypass_time;
  };
  size_t refused = 0;
  for (size_t i = 0;
       i < waiting_.size() && budget_ > 0 && refused < replica::Scheduler::kMaxRefusedPerStep;) {
    if (!std::ranges::all_of(passed, may_be_passed)) return;
    Sequence& sequence = *waiting_[i];
    const Admission admission = TryAdmit(sequence, now);
    if (admission == Admission::kAdmitted) {
      for (Sequence* other : passed) ++other->bypasses;
      const auto place = std::ranges::upper_bound(running_, sequence.arrival, {}, &Sequence::arrival_of);
      waiting_tokens_ -= sequence.length();
      running_.insert(place, std::move(waiting_[i]));
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      BeginChunk(sequence);
      continue;
    }
    ++refused, ++i;
    if (admission == Admission::kComputedByAnother) continue;
    if (!std::exchange(sequence.blocked, true)) sequence.blocked_since = now;
    passed.push_back(&sequence);
  }
}

QueueReplica::Admission QueueReplica::TryAdmit(Sequence& sequence, Instant now) {
  if (std::ssize(running_) >= options_.scheduler.max_running) return Admission::kNoRoom;
  const std::span<const TokenId> history =
      std::span(sequence.request.prompt.ids).first(static_cast<size_t>(IdsOf(sequence.length())));
  const auto may_be_cached = static_cast<int32_t>(history.size()) - 1;
  if (blocks_.IsBeingComputed(sequence.table, history, may_be_cached)) return Admission::kComputedByAnother;
  const std::optional<int32_t> cached =
      blocks_.Admit(sequence.table, {.tokens = history,
                                     .max_cached_tokens = may_be_cached,
                                     .headroom_blocks = static_cast<int32_t>(running_.size()),
                                     .readmission = sequence.admitted_once});
  if (!cached) return Admission::kNoRoom;
  sequence.computed = *cached * grain_;
  if (sequence.length() % options_.block_tokens == 0 && blocks_.CopyOfLastBlock(sequence.table, history))
    sequence.computed = sequence.length() - 1;
  sequence.blocked = false;
  if (std::exchange(sequence.admitted_once, true)) return Admission::kAdmitted;
  sequence.cached = *cached * grain_;
  events_.push_back({.request = sequence.request.index,
                     .kind = ReplicaEvent::Kind::kAdmitted,
                     .prompt_tokens = sequence.prompt_tokens,
                     .cached_tokens = sequence.cached,
                     .queued = now - sequence.added});
  return Admission::kAdmitted;
}

Duration QueueReplica::Begin(Instant now) {
  const StepCostModel& cost = options_.cost;
  begun_ = now;
  prefills_ = false;
  decoding_ = 0;
  first_ns_ = cost.base_ns;
  for (const Owned& sequence : running_) {
    if (sequence->chunk == 0 && !sequence->decoding()) continue;
    first_ns_ += cost.per_context_token_ns * sequence->computed;
    prefills_ |= sequence->chunk > 0;
    decoding_ += sequence->chunk > 0 ? 0 : 1;
    first_ns_ +=
        sequence->chunk > 1 ? cost.per_prefill_token_ns * sequence->chunk : cost.per_decode_sequence_ns;
  }
  growth_ns_ = cost.per_context_token_ns * decoding_;
  steps_ = prefills_ ? 1 : StepsOfRun();
  if (!prefills_ && decoding_ > 0) decode_step_ns_ = first_ns_;
  return FromSeconds(SecondsOfRun(steps_));
}

int64_t QueueReplica::StepsOfRun() const {
  int64_t steps = decoding_ == 0 ? 1 : std::numeric_limits<int64_t>::max();
  for (const Owned& sequence : running_) {
    const int32_t left = sequence->request.output_tokens - sequence->generated;
    const int32_t of_block = options_.block_tokens - sequence->computed % options_.block_tokens;
    steps = std::min<int64_t>({steps, left, of_block});
  }
  return steps;
}

double QueueReplica::SecondsOfRun(int64_t steps) const {
  const auto k = static_cast<double>(steps);
  return (k * first_ns_ + growth_ns_ * k * (k - 1) / 2) * 1e-9;
}

std::optional<Instant> QueueReplica::Interrupt(Instant now) {
  if (steps_ <= 1) return std::nullopt;
  // The least k with SecondsOfRun(k) >= the time gone by: growth/2 · k² + (first − growth/2) · k = gone.
  const double gone = static_cast<double>((now - begun_).count());
  const double half = growth_ns_ / 2, linear = first_ns_ - half;
  const double k =
      half > 0 ? (std::sqrt(linear * linear + 4 * half * gone) - linear) / (2 * half) : gone / linear;
  const int64_t steps = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(k - 1e-9)), 1, steps_);
  if (steps == steps_) return std::nullopt;
  steps_ = steps;
  return std::max(now, begun_ + FromSeconds(SecondsOfRun(steps_)));
}

// ---- a step has ended ----

StepMessage QueueReplica::TakeMessage() {
  stats_.steps += static_cast<uint64_t>(steps_);
  EndDecodes();
  for (const Owned& sequence : running_) {
    if (sequence->chunk > 0) EndChunk(*sequence);
  }
  std::erase_if(running_, [&](const Owned& sequence) {
    if (!Ended(*sequence)) return false;
    Finish(*sequence);
    return true;
  });
  steps_ = 0;
  StepMessage message{.events = std::exchange(events_, {})};
  const replica::CacheEventBatch batch = blocks_.events().Take();
  message.first_sequence = batch.first_sequence;
  message.cache_events = ToRouter(batch.events);
  return message;
}

void QueueReplica::EndDecodes() {
  const auto steps = static_cast<int32_t>(steps_);
  for (const Owned& sequence : running_) {
    if (!sequence->decoding() || sequence->chunk > 0) continue;
    sequence->computed += steps;
    sequence->generated += steps;
    if (sequence->computed % options_.block_tokens == 0)
      blocks_.Commit(sequence->table, sequence->request.prompt.ids, sequence->computed / grain_);
  }
}

void QueueReplica::EndChunk(Sequence& sequence) {
  sequence.computed += std::exchange(sequence.chunk, 0);
  blocks_.Commit(sequence.table, sequence.request.prompt.ids, sequence.computed / grain_);
  if (sequence.computed < sequence.length() || sequence.request.output_tokens == 0) return;
  if (sequence.generated == 0)
    events_.push_back({.request = sequence.request.index, .kind = ReplicaEvent::Kind::kToken});
  ++sequence.generated;
}

bool QueueReplica::Ended(const Sequence& sequence) const {
  const bool prefilled = sequence.computed >= sequence.prompt_tokens;
  return prefilled && sequence.generated >= sequence.request.output_tokens;
}

void QueueReplica::Finish(Sequence& sequence) {
  blocks_.Release(sequence.table);
  events_.push_back({.request = sequence.request.index,
                     .kind = ReplicaEvent::Kind::kDone,
                     .prompt_tokens = sequence.prompt_tokens,
                     .cached_tokens = sequence.cached,
                     .output_tokens = sequence.generated});
}

void QueueReplica::Cancel(uint32_t index) {
  const auto is_it = [&](const Owned& sequence) { return sequence->request.index == index; };
  std::erase_if(events_, [&](const ReplicaEvent& event) { return event.request == index; });
  if (const auto it = std::ranges::find_if(running_, is_it); it != running_.end()) {
    blocks_.Release((*it)->table);
    running_.erase(it);
  } else if (const auto at = std::ranges::find_if(waiting_, is_it); at != waiting_.end()) {
    waiting_tokens_ -= (*at)->length();
    waiting_.erase(at);
  }
}

// ---- what others see ----

ReplicaModel::Snapshot QueueReplica::CacheSnapshot() const {
  return {ToRouter(blocks_.Snapshot()), blocks_.events().next_sequence()};
}

router::LoadReport QueueReplica::Load() const {
  int64_t pending = waiting_tokens_;
  for (const Owned& s : running_) pending += s->decoding() ? 0 : s->length() - s->computed;
  const int64_t of_block = blocks_.block_size();
  return {.running = static_cast<int32_t>(running_.size()),
          .waiting = static_cast<int32_t>(waiting_.size()),
          .kv_used_tokens = blocks_.used_blocks() * of_block,
          .kv_cached_tokens = blocks_.cached_blocks() * of_block,
          .pending_prefill_tokens = pending / grain_,
          .prefill_tokens_per_second = prefill_ids_per_second_,
          .decode_step_seconds = decode_step_ns_ * 1e-9 * grain_};  // of a whole id
}

std::string QueueReplica::CheckIntegrity() const {
  std::vector<const replica::BlockTable*> tables;
  for (const Owned& sequence : running_) tables.push_back(&sequence->table);
  return blocks_.CheckIntegrity(tables);
}

ReplicaStats QueueReplica::stats() const {
  ReplicaStats stats = stats_;
  stats.evictions = blocks_.stats().evictions;
  return stats;
}

}  // namespace kvring::sim
