#include "replica/server/running_generation.h"

namespace kvring::replica {

RunningGeneration::RunningGeneration(GenerationPlan plan, std::shared_ptr<GenerationSink> sink,
                                     const ServedModel& model, int32_t block_size)
    : plan_(std::move(plan)), sink_(std::move(sink)), model_(model), block_size_(block_size) {
  for (const PlannedPrompt& prompt : plan_.prompts) {
    for (int32_t choice = 0; choice < plan_.choices_per_prompt; ++choice) {
      choices_.push_back(std::make_unique<ChoiceText>(model_.tokenizer(), plan_.stops));
      choices_.back()->PushEcho(prompt.echo);
    }
  }
  stopped_.resize(choices_.size());
}

EngineRequest RunningGeneration::TakeRequest(size_t index, RequestId id) {
  requests_.push_back(id);
  plan_.prompts[index].request.id = id;
  return plan_.prompts[index].request;
}

int32_t RunningGeneration::IndexOf(size_t prompt, int32_t choice) const {
  return static_cast<int32_t>(prompt) * plan_.choices_per_prompt + choice;
}

ChoiceText& RunningGeneration::ChoiceOf(size_t prompt, int32_t choice) {
  return *choices_[static_cast<size_t>(IndexOf(prompt, choice))];
}

void RunningGeneration::Send(int32_t index, const ChoiceText::Piece& piece, std::string_view finish_reason) {
  if (piece.text.empty() && piece.logprobs.empty() && piece.tokens.empty() && finish_reason.empty()) return;
  sink_->OnDelta({{index, piece.text, finish_reason, piece.logprobs}, piece.tokens});
}

bool RunningGeneration::OnToken(size_t prompt, const EngineEvent::Token& token) {
  const int32_t index = IndexOf(prompt, token.choice);
  const ChoiceText::Piece piece = ChoiceOf(prompt, token.choice).Push(token);
  Send(index, piece, "");
  stopped_[static_cast<size_t>(index)] = piece.stopped;
  return piece.stopped;
}

void RunningGeneration::OnPromptToken(size_t prompt, const EngineEvent::PromptToken& token) {
  for (int32_t choice = 0; choice < plan_.choices_per_prompt; ++choice)
    ChoiceOf(prompt, choice).PushPrompt(token);
}

void RunningGeneration::OnAdmitted(const EngineEvent::Admitted& admitted) {
  usage_.prompt_tokens += admitted.prompt_tokens;
  usage_.cached_tokens += admitted.cached_tokens;
  if (++admitted_ < plan_.prompts.size()) return;
  sink_->OnAdmitted(
      {usage_.prompt_tokens, usage_.cached_tokens, BlockEnds(plan_.prompts[0].end_bytes, block_size_)});
}

void RunningGeneration::OnFinished(size_t prompt, const EngineEvent::Finished& finished) {
  const int32_t index = IndexOf(prompt, finished.choice);
  const ChoiceText::Piece piece =
      ChoiceOf(prompt, finished.choice).Finish(stopped_[static_cast<size_t>(index)]);
  Send(index, piece, finished.reason == FinishReason::kStop ? "stop" : "length");
}

bool RunningGeneration::OnDone(const EngineEvent::Done& done) {
  usage_.completion_tokens += done.usage.completion_tokens;
  if (++done_ < plan_.prompts.size()) return false;
  const PlannedPrompt& first = plan_.prompts[0];
  usage_.truncated_tokens = first.truncated_tokens;
  sink_->OnDone({usage_, [&]() -> std::vector<uint32_t> {
                   if (first.truncated_tokens > 0) return {};
                   return ConversationBlockEnds(
                       model_.tokenizer(), first.request.prompt, first.end_bytes, *choices_[0],
                       first.canonical_size + plan_.answer_prefix.size(), block_size_);
                 }});
  return true;
}

}  // namespace kvring::replica
