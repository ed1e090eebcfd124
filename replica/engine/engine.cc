#include "replica/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "replica/engine/request_check.h"

namespace kvring::replica {
namespace {

BlockManagerOptions BlockOptions(const ExecutorLimits& limits, const EngineOptions& options) {
  return {.num_blocks = limits.num_blocks,
          .block_size = limits.block_size,
          .window = limits.window,
          .key = options.cache_key,
          .prefix_caching = options.prefix_caching,
          .event_capacity = options.cache_event_capacity,
          .chain = options.chain,
          .tier = options.host_tier};
}

int32_t SequenceLimit(const ExecutorLimits& limits, const BlockManager& blocks) {
  if (blocks.BlocksHeldAtMost(1) <= limits.num_blocks) return limits.context_length;
  const int64_t pool = int64_t{limits.num_blocks} * limits.block_size;
  return static_cast<int32_t>(std::min<int64_t>(limits.context_length, pool));
}

bool HasPenalties(const SamplingParams& p) { return p.frequency_penalty != 0 || p.presence_penalty != 0; }

/// First token of the chunk whose logits are wanted: from the first prompt row not yet handed out, or the
/// last token of the history when the chunk reaches it.
int32_t LogitsFrom(const Sequence& sequence, int32_t tokens) {
  if (sequence.prompt_rows_done < sequence.prompt_tokens) {
    return std::min(tokens, sequence.prompt_rows_done - sequence.computed);
  }
  return tokens == sequence.pending() ? tokens - 1 : tokens;
}

}  // namespace

Engine::Engine(Executor& executor, const EngineOptions& options)
    : executor_(executor),
      options_(options),
      blocks_(BlockOptions(executor.limits(), options)),
      scheduler_(options.scheduler, blocks_),
      limit_(SequenceLimit(executor.limits(), blocks_)) {}

absl::Status Engine::Add(EngineRequest request, Instant now) {
  if (requests_.contains(request.id)) {
    return absl::AlreadyExistsError(absl::StrCat("request id ", request.id.value, " is in use"));
  }
  const RequestLimits limits{.vocab_size = executor_.limits().vocab_size,
                             .max_tokens_per_sequence = limit_,
                             .max_choices = options_.scheduler.max_running,
                             .cap_max_tokens = options_.cap_max_tokens};
  if (absl::Status status = CheckRequest(request, limits); !status.ok()) return status;
  if (scheduler_.waiting() >= options_.scheduler.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the waiting queue is full (", options_.scheduler.max_waiting, " requests)"));
  }
  auto active = std::make_unique<ActiveRequest>();
  active->max_tokens = ResolveMaxTokens(request, limits);
  active->spec = std::move(request);
  active->added = now;
  Sequence& first = AddChoice(*active, 0);
  first.rank.arrival = next_arrival_++;
  first.table.root = active->spec.root;
  first.table.retention = active->spec.retention;
  first.slots = active->spec.n;
  scheduler_.Enqueue(first);
  const RequestId id = active->spec.id;
  requests_.emplace(id, std::move(active));
  return absl::OkStatus();
}

Sequence& Engine::AddChoice(ActiveRequest& request, int32_t choice) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = {next_sequence_++};
  sequence->request = &request;
  sequence->rank = {.priority = request.spec.priority, .choice = choice};
  sequence->tenant = request.spec.tenant;
  sequence->tokens = request.spec.prompt;
  sequence->prompt_tokens = static_cast<int32_t>(request.spec.prompt.size());
  sequence->prompt_rows_done = request.spec.prompt_logprobs ? 0 : std::numeric_limits<int32_t>::max();
  request.choices.push_back(std::move(sequence));
  return *request.choices.back();
}

std::optional<EngineUsage> Engine::Cancel(RequestId id) {
  const auto entry = requests_.find(id);
  if (entry == requests_.end()) return std::nullopt;
  const EngineUsage usage = entry->second->usage();
  for (const auto& sequence : entry->second->choices) scheduler_.Remove(*sequence);
  requests_.erase(entry);
  std::erase_if(events_, [&](const EngineEvent& event) { return event.request == id; });
  return usage;
}

bool Engine::Finish(RequestId id, int32_t choice) {
  const auto entry = requests_.find(id);
  if (entry == requests_.end()) return false;
  ActiveRequest& request = *entry->second;
  if (choice < 0 || static_cast<size_t>(choice) >= request.choices.size()) return false;
  Sequence& sequence = *request.choices[choice];
  if (sequence.state == Sequence::State::kFinished || sequence.output_tokens() == 0) return false;
  FinishSequence(sequence, FinishReason::kStop);
  DropEnded();
  return true;
}

StepReport Engine::Step(Instant now) {
  if (requests_.empty()) return {};
  const StepPlan& plan = scheduler_.Plan(now);
  const StepReport report = BuildBatch(plan);
  ReportAdmissions(plan, now);
  output_.logits = {};
  output_.tokens.clear();
  absl::Status status = executor_.Execute(batch_, output_);
  if (status.ok()) status = CheckOutput();
  if (status.ok()) {
    HandleOutput(plan);
  } else {
    for (const ScheduledSequence& item : plan.items) Fail(*item.sequence->request, status);
  }
  DropEnded();
  return report;
}

StepReport Engine::BuildBatch(const StepPlan& plan) {
  StepReport report{.sequences = static_cast<int32_t>(plan.items.size()), .preemptions = plan.preemptions};
  batch_.copies.assign(plan.copies.begin(), plan.copies.end());
  batch_.steps.clear();
  rows_ = 0;
  for (const auto& [sequence, tokens] : plan.items) {
    const int32_t logits_from = LogitsFrom(*sequence, tokens);
    batch_.steps.push_back({.id = sequence->id,
                            .tokens = std::span(sequence->tokens).subspan(sequence->computed, tokens),
                            .first_position = sequence->computed,
                            .block_table = sequence->table.blocks,
                            .logits_from = logits_from});
    rows_ += tokens - logits_from;
    const bool decode = sequence->computed >= sequence->prompt_tokens && sequence->pending() == 1;
    (decode ? report.decode_tokens : report.prefill_tokens) += tokens;
  }
  return report;
}

void Engine::ReportAdmissions(const StepPlan& plan, Instant now) {
  for (const Sequence* sequence : plan.admitted) {
    ActiveRequest& request = *sequence->request;
    request.cached_tokens = sequence->cached_tokens;
    Emit(request,
         EngineEvent::Admitted{sequence->prompt_tokens, sequence->cached_tokens, now - request.added});
  }
}

absl::Status Engine::CheckOutput() const {
  const size_t logits = static_cast<size_t>(rows_) * executor_.limits().vocab_size;
  const bool sampled = output_.logits.empty() && output_.tokens.size() == static_cast<size_t>(rows_);
  if (sampled || output_.logits.size() == logits) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("executor: ", rows_, " rows of logits wanted, got ",
                                          output_.logits.size(), " logits and ", output_.tokens.size(),
                                          " tokens"));
}

void Engine::HandleOutput(const StepPlan& plan) {
  int32_t row = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    Sequence& sequence = *plan.items[i].sequence;
    const int32_t tokens = plan.items[i].tokens;
    const int32_t rows = tokens - batch_.steps[i].logits_from;
    if (!sequence.request->ended) {
      sequence.computed += tokens;
      blocks_.Commit(sequence.table, sequence.tokens, sequence.computed);
      blocks_.FreeBehind(sequence.table, sequence.computed);
      if (sequence.prompt_rows_done < sequence.prompt_tokens) EmitPromptRows(sequence, row, rows);
      if (sequence.pending() == 0) AdvanceChoices(sequence, row + rows - 1);
    }
    row += rows;
  }
}

// Row k of the request's prompt gives the log probability of token k + 1; token 0 has none.
void Engine::EmitPromptRows(Sequence& sequence, int32_t first_row, int32_t rows) {
  const ActiveRequest& request = *sequence.request;
  if (sequence.prompt_rows_done == 0)
    Emit(request, EngineEvent::PromptToken{sequence.tokens[0], std::nullopt});
  for (int32_t row = first_row; row < first_row + rows; ++row) {
    const int32_t next = ++sequence.prompt_rows_done;
    if (next >= sequence.prompt_tokens) break;
    const TokenId token = sequence.tokens[next];
    Emit(request, EngineEvent::PromptToken{token, LogprobsOf(request, token, row)});
  }
}

void Engine::AdvanceChoices(Sequence& sequence, int32_t row) {
  ActiveRequest& request = *sequence.request;
  const auto n = static_cast<size_t>(request.spec.n);
  if (request.choices.size() == n) return SampleToken(sequence, row);
  while (request.choices.size() < n) Fork(sequence);
  for (const auto& choice : request.choices) {
    if (!request.ended) SampleToken(*choice, row);
  }
}

// The prompt has been computed: a sibling begins on the same blocks, the part-filled last one copied when it
// is written.
void Engine::Fork(Sequence& first) {
  Sequence& fork = AddChoice(*first.request, static_cast<int32_t>(first.request->choices.size()));
  fork.rank.arrival = first.rank.arrival;
  fork.computed = first.computed;
  fork.prompt_rows_done = std::numeric_limits<int32_t>::max();
  fork.admitted_once = true;
  fork.table = blocks_.Fork(first.table, first.computed);
  scheduler_.AddFork(fork, first);
}

void Engine::SampleToken(Sequence& sequence, int32_t row) {
  ActiveRequest& request = *sequence.request;
  if (request.max_tokens == 0) return FinishSequence(sequence, FinishReason::kLength);
  if (output_.logits.empty()) return AcceptToken(sequence, output_.tokens[row], row);
  const DrawKey key{request.spec.sampling.seed, sequence.rank.choice, sequence.output_tokens()};
  const std::optional<TokenId> token =
      sampler_.Sample(Row(row), request.spec.sampling, sequence.counts, BannedTokens(sequence), key);
  if (!token.has_value()) return Fail(request, absl::InternalError("no token has a finite logit"));
  AcceptToken(sequence, *token, row);
}

void Engine::AcceptToken(Sequence& sequence, TokenId token, int32_t row) {
  ActiveRequest& request = *sequence.request;
  sequence.tokens.push_back(token);
  if (HasPenalties(request.spec.sampling)) sequence.counts.Add(token);
  ++request.completion_tokens;
  const auto& eos = request.spec.eos_tokens;
  const bool end = !request.spec.ignore_eos && std::ranges::find(eos, token) != eos.end();
  Emit(request, EngineEvent::Token{sequence.rank.choice, token, end, LogprobsOf(request, token, row)});
  if (end) {
    FinishSequence(sequence, FinishReason::kStop);
  } else if (sequence.output_tokens() >= request.max_tokens) {
    FinishSequence(sequence, FinishReason::kLength);
  }
}

std::span<const TokenId> Engine::BannedTokens(const Sequence& sequence) const {
  const EngineRequest& spec = sequence.request->spec;
  if (spec.ignore_eos || sequence.output_tokens() >= spec.sampling.min_tokens) return {};
  return spec.eos_tokens;
}

std::optional<TokenLogprobs> Engine::LogprobsOf(const ActiveRequest& request, TokenId token, int32_t row) {
  const std::optional<int32_t>& alternatives = request.spec.sampling.logprobs;
  if (output_.logits.empty() || !alternatives.has_value()) return std::nullopt;
  return sampler_.Logprobs(Row(row), token, *alternatives);
}

void Engine::FinishSequence(Sequence& sequence, FinishReason reason) {
  ActiveRequest& request = *sequence.request;
  scheduler_.Remove(sequence);
  Emit(request, EngineEvent::Finished{sequence.rank.choice, reason});
  if (++request.finished_choices < request.spec.n) return;
  Emit(request, EngineEvent::Done{request.usage()});
  request.ended = true;
  ended_.push_back(request.spec.id);
}

void Engine::Fail(ActiveRequest& request, const absl::Status& status) {
  if (request.ended) return;
  for (const auto& sequence : request.choices) scheduler_.Remove(*sequence);
  Emit(request, EngineEvent::Failed{status, request.usage()});
  request.ended = true;
  ended_.push_back(request.spec.id);
}

void Engine::Emit(const ActiveRequest& request, EngineEvent::Kind what) {
  events_.push_back({request.spec.id, std::move(what)});
}

// Kept until the step is over: its plan points at the sequences.
void Engine::DropEnded() {
  for (const RequestId id : ended_) requests_.erase(id);
  ended_.clear();
}

std::span<const float> Engine::Row(int32_t row) const {
  const auto vocabulary = static_cast<size_t>(executor_.limits().vocab_size);
  return output_.logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
}

std::vector<EngineEvent> Engine::TakeEvents() { return std::exchange(events_, {}); }

EngineLoad Engine::Load() const {
  return {.running = static_cast<int32_t>(scheduler_.running().size()),
          .waiting = scheduler_.waiting(),
          .kv_used_tokens = int64_t{blocks_.used_blocks()} * blocks_.block_size(),
          .kv_cached_tokens = int64_t{blocks_.cached_blocks()} * blocks_.block_size(),
          .kv_host_tier_tokens = int64_t{blocks_.tier_blocks()} * blocks_.block_size(),
          .pending_prefill_tokens = scheduler_.pending_prefill_tokens()};
}

std::string Engine::CheckIntegrity() const {
  std::vector<const BlockTable*> tables;
  for (const Sequence* sequence : scheduler_.running()) tables.push_back(&sequence->table);
  if (tables.empty() && blocks_.used_blocks() != 0) return "blocks are used, but no sequence runs";
  return blocks_.CheckIntegrity(tables);
}

}  // namespace kvring::replica
