// FleetRun: requests from their arrival to their end.
#include <algorithm>
#include <utility>

#include "sim/fleet_run.h"

namespace kvring::sim {

void FleetRun::Arrive(uint32_t index) {
  active_[index] = std::make_unique<Active>();
  Active& active = *active_[index];
  active.arrived = now_;
  active.prompt = playback_.PromptOf(index);
  if (routers_.size() > 1) active.router = static_cast<uint32_t>(random_.Below(routers_.size()));
  ++result_.requests;
  result_.prompt_tokens += active.prompt.tokens;
  active.key = router::MakePromptKey(kSimIdentity, std::span<const TokenId>(active.prompt.ids));
  result_.ceiling_tokens += playback_.CeilingOf(active.prompt, active.key);
  Dispatch(index);
}

void FleetRun::Dispatch(uint32_t index) {
  const TraceRequest& request = playback_.request(index);
  Active& active = *active_[index];
  RouterNode& at = routers_[active.router];
  router::RequestView view{.id = IdOf(index),
                           .model = kSimIdentity.model,
                           .prompt = &active.key,
                           .max_output_tokens = IdsOf(request.output_tokens),
                           .excluded = active.excluded};
  if (options_.session_keys && request.session != 0) {
    view.session = SessionKey{MixBits(request.session)};
    view.session_source = router::SessionSource::kHeader;
  }
  const router::Decision decision = at.router->OnRequest(view, now_);
  if (!decision.replica) return Refuse(index, router::OutcomeClass::kRefused);
  at.router->OnDispatch(view.id, now_);
  active.predicted = decision.predicted_cached_tokens * grain_;
  active.replica = at.index_of.at(*decision.replica);
  ++active.attempt;
  nodes_[active.replica].inside.insert(index);
  Note(index, active.replica);
  events_.Push(now_ + options_.network_delay, {Kind::kReach, index, active.attempt});
  if (faulty() && decision.patience.count() > 0)
    events_.Push(now_ + decision.patience, {Kind::kPatience, index, active.attempt});
}

void FleetRun::Reach(uint32_t index, uint32_t attempt) {
  if (!Current(index, attempt)) return;
  Active& active = *active_[index];
  Node& node = nodes_[active.replica];
  if (!node.alive || Cut(active.replica, active.router)) return Lose(index);
  const absl::Status added = node.replica->Add({.index = index,
                                                .prompt = active.prompt,
                                                .output_tokens = playback_.request(index).output_tokens,
                                                .answer_content = Playback::AnswerContent(index)},
                                               now_);
  if (!added.ok()) {
    LeaveReplica(index);
    return Refuse(index, router::OutcomeClass::kClientError);
  }
  if (!node.busy) return Step(active.replica);
  if (const auto end = node.replica->Interrupt(now_)) EndStepAt(active.replica, *end);
}

// Its connection breaks: the router hears of it.
void FleetRun::Lose(uint32_t index) {
  events_.Push(now_ + options_.network_delay, {Kind::kLost, index, active_[index]->attempt});
}

// Before the first token it is tried elsewhere; after it, the stream is broken.
void FleetRun::Fail(uint32_t index, router::OutcomeClass outcome) {
  Active& active = *active_[index];
  nodes_[active.replica].replica->Cancel(index);  // it sees its connection close
  LeaveReplica(index);
  router::Router& router = *routers_[active.router].router;
  if (active.first_token_seen) {
    ++result_.failed;
    result_.last_trouble = now_ - Instant{1};
    router.OnComplete(IdOf(index), {.outcome = router::OutcomeClass::kStreamError}, now_);
    return End(index);
  }
  ++result_.retries;
  router.OnAttemptFailed(IdOf(index), {.outcome = outcome}, now_);
  active.excluded.push_back(nodes_[active.replica].ids[active.router]);
  ++active.attempt;
  Dispatch(index);
}

void FleetRun::Refuse(uint32_t index, router::OutcomeClass outcome) {
  ++result_.refused;
  result_.last_trouble = now_ - Instant{1};
  routers_[active_[index]->router].router->OnComplete(IdOf(index), {.outcome = outcome}, now_);
  End(index);
}

void FleetRun::LeaveReplica(uint32_t index) { nodes_[active_[index]->replica].inside.erase(index); }

void FleetRun::Take(const ReplicaEvent& event) {
  switch (event.kind) {
    case ReplicaEvent::Kind::kAdmitted:
      return TakeAdmission(event);
    case ReplicaEvent::Kind::kToken:
      return TakeToken(event);
    case ReplicaEvent::Kind::kDone:
      return TakeEnd(event);
  }
}

// Counted once, however often it is tried.
void FleetRun::TakeAdmission(const ReplicaEvent& event) {
  Active& active = *active_[event.request];
  routers_[active.router].router->OnAdmitted(
      IdOf(event.request),
      {.prompt_tokens = IdsOf(event.prompt_tokens), .cached_tokens = IdsOf(event.cached_tokens)}, now_);
  Note(event.request, static_cast<uint64_t>(event.cached_tokens));
  if (std::exchange(active.admitted, true)) return;
  result_.queued.Record(event.queued.count());
  admitted_tokens_ += event.prompt_tokens;
  result_.cached_tokens += event.cached_tokens;
  result_.predicted_tokens += active.predicted;
  result_.predictions_exact += active.predicted == event.cached_tokens;
}

void FleetRun::TakeToken(const ReplicaEvent& event) {
  Active& active = *active_[event.request];
  if (options_.fidelity == Fidelity::kStep) active.answer.push_back(event.token);
  if (std::exchange(active.first_token_seen, true)) return;
  active.first_token = now_;
  routers_[active.router].router->OnFirstToken(IdOf(event.request), now_);
  result_.ttft.Record((now_ - active.arrived).count());
}

void FleetRun::TakeEnd(const ReplicaEvent& event) {
  const Active& active = *active_[event.request];
  const TraceRequest& request = playback_.request(event.request);
  routers_[active.router].router->OnComplete(
      IdOf(event.request),
      {.usage = router::UsageReport{.prompt_tokens = IdsOf(event.prompt_tokens),
                                    .completion_tokens = IdsOf(event.output_tokens),
                                    .cached_tokens = IdsOf(event.cached_tokens)}},
      now_);
  result_.output_tokens += event.output_tokens;
  result_.latency.Record((now_ - active.arrived).count());
  if (event.output_tokens > 1)
    result_.itl.Record((now_ - active.first_token).count() / (event.output_tokens - 1));
  result_.requests_of.resize(nodes_.size());
  ++result_.requests_of[active.replica];
  if (request.after >= 0) {
    ++result_.follow_ups;
    result_.follow_ups_on_same += playback_.ReplicaBefore(event.request) == active.replica;
  }
  LeaveReplica(event.request);
  End(event.request);
}

// The request is over: its follow-ups come after their waits.
void FleetRun::End(uint32_t index) {
  Active& active = *active_[index];
  History history = std::move(active.prompt);
  if (options_.fidelity == Fidelity::kStep) {
    history.ids.insert(history.ids.end(), active.answer.begin(), active.answer.end());
    history.tokens = std::ssize(history.ids);
  } else {
    history.Append({Playback::AnswerContent(index), playback_.request(index).output_tokens}, grain_);
  }
  for (const auto& next : playback_.End(index, std::move(history), active.replica))
    events_.Push(now_ + next.pause, {Kind::kArrive, next.index});
  active_[index].reset();
  --left_;
}

}  // namespace kvring::sim
