// RunningGeneration: a request inside the engine loop: its prompts, the text of each choice, and the sums
// over its prompts that the client sees as one answer. Loop thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "replica/engine/request.h"
#include "replica/server/choice_text.h"
#include "replica/server/generation.h"

namespace kvring::replica {

class RunningGeneration {
 public:
  RunningGeneration(GenerationPlan plan, std::shared_ptr<GenerationSink> sink, const ServedModel& model,
                    int32_t block_size);

  const std::vector<RequestId>& requests() const { return requests_; }
  size_t prompts() const { return plan_.prompts.size(); }
  /// The engine's request of prompt `index`, to be added under `id`. Its tokens are kept here too.
  EngineRequest TakeRequest(size_t index, RequestId id);
  const std::string& token_field() const { return plan_.token_field; }

  /// Whether the choice must be ended: a stop string is complete.
  bool OnToken(size_t prompt, const EngineEvent::Token& token);
  void OnPromptToken(size_t prompt, const EngineEvent::PromptToken& token);
  void OnAdmitted(const EngineEvent::Admitted& admitted);
  void OnFinished(size_t prompt, const EngineEvent::Finished& finished);
  /// True when the last prompt is done; then the sink has been told.
  bool OnDone(const EngineEvent::Done& done);
  void Fail(const openai::ApiError& error) { sink_->OnError(error); }

  const openai::UsageCounts& usage() const { return usage_; }

 private:
  ChoiceText& ChoiceOf(size_t prompt, int32_t choice);
  int32_t IndexOf(size_t prompt, int32_t choice) const;
  void Send(int32_t index, const ChoiceText::Piece& piece, std::string_view finish_reason);

  GenerationPlan plan_;
  std::shared_ptr<GenerationSink> sink_;  // shared with the connection that may be gone first
  const ServedModel& model_;
  int32_t block_size_;
  std::vector<RequestId> requests_;
  std::vector<std::unique_ptr<ChoiceText>> choices_;  // by index: prompt-major
  std::vector<bool> stopped_;
  size_t admitted_ = 0;
  size_t done_ = 0;
  openai::UsageCounts usage_;
};

}  // namespace kvring::replica
