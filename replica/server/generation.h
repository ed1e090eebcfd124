// Generation: one client request on its way through the engine. PlanGeneration (any thread) turns a validated
// OpenAI request into token prompts; the engine loop runs them and tells a GenerationSink, on its own thread,
// what came out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/openai/generation_request.h"
#include "common/openai/response_writer.h"
#include "replica/engine/request.h"
#include "replica/server/served_model.h"

namespace kvring::replica {

/// One prompt of a request; a completion body may hold several.
struct PlannedPrompt {
  EngineRequest request;  // the id is given by the engine loop
  std::vector<uint32_t>
      end_bytes;  // per prompt token: canonical bytes that it depends on (replica/model/encoded_prompt.h)
  size_t canonical_size = 0;  // of the prompt
  std::string echo;           // text that precedes the answer; empty: none
  int32_t truncated_tokens =
      0;  // cut off the front; then end_bytes is empty, since nothing is a prefix any more
};

struct GenerationPlan {
  std::vector<PlannedPrompt> prompts;
  std::vector<std::string> stops;
  std::string
      answer_prefix;  // canonical bytes between the prompt and an answer's text: "assistant" 0x1F in a chat
  std::string token_field;  // "messages" or "prompt": what a context-length error names
  int32_t choices_per_prompt = 1;
  int32_t typed_bos = 0;  // prompts that bring the BOS which the model adds by itself
};

/// What the engine says of a request, added up over its prompts.
struct AdmittedInfo {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  std::vector<uint32_t> block_end_bytes;  // of the first prompt
};

struct DoneInfo {
  openai::UsageCounts usage;
  /// Of the first prompt with the text of its choice 0. Tokenises the tail of the conversation: for sinks
  /// that pass it on.
  absl::FunctionRef<std::vector<uint32_t>()> block_end_bytes;
};

struct GenerationDelta {
  openai::ChoiceDelta choice;
  std::span<const TokenId> tokens;
};

/// Receives a request's events in order: OnAdmitted, OnDelta…, then OnDone or OnError (OnError may also come
/// alone). Called on the engine's thread; must not block.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void OnAdmitted(const AdmittedInfo& info) = 0;
  virtual void OnDelta(const GenerationDelta& delta) = 0;
  virtual void OnDone(const DoneInfo& info) = 0;
  virtual void OnError(const openai::ApiError& error) = 0;
};

/// Tokenises and checks what depends on the model: its name, its template, the kinds of content it takes.
std::optional<openai::ApiError> PlanGeneration(const ServedModel& model, openai::GenerationRequest request,
                                               GenerationPlan& plan);

}  // namespace kvring::replica
