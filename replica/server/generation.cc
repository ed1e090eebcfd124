#include "replica/server/generation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/canonical_prompt.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "common/utf8.h"

namespace kvring::replica {
namespace {

using openai::ApiError;
using openai::GenerationRequest;
using openai::InvalidRequest;
using openai::SamplingFields;

SamplingParams ParamsOf(const SamplingFields& fields) {
  SamplingParams params;
  params.temperature = static_cast<float>(fields.temperature);
  params.top_k = fields.top_k;
  params.top_p = static_cast<float>(fields.top_p);
  params.min_p = static_cast<float>(fields.min_p);
  params.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  params.presence_penalty = static_cast<float>(fields.presence_penalty);
  params.seed = fields.seed.has_value() ? *fields.seed : RandomSeed();
  params.min_tokens = fields.min_tokens;
  params.logit_bias.assign(fields.logit_bias.begin(), fields.logit_bias.end());
  params.logprobs = fields.logprobs;
  return params;
}

CacheRetention RetentionOf(const openai::CacheRetentionFields& fields) {
  switch (fields.cache_class) {
    case openai::CacheClass::kLow:
      return {Retention::kLow, {}};
    case openai::CacheClass::kHigh:
      return {Retention::kHigh, std::chrono::seconds(fields.ttl_s)};
    case openai::CacheClass::kPinned:
      return {Retention::kPinned, std::chrono::seconds(fields.ttl_s)};
    default:
      return {};
  }
}

// A salt is a tenant's: those without one share the engine as one.
TenantId TenantOf(const std::string& salt) { return {salt.empty() ? 0 : HashName(salt)}; }

EngineRequest EngineRequestOf(const ServedModel& model, const GenerationRequest& request,
                              std::vector<TokenId> tokens) {
  EngineRequest out;
  out.prompt = std::move(tokens);
  out.root = MakeCacheRoot({.model = model.name(), .adapter = "", .salt = request.cache_salt});
  out.tenant = TenantOf(request.cache_salt);
  out.priority = request.priority;
  out.retention = RetentionOf(request.cache_retention);
  out.n = request.sampling.n;
  out.max_tokens = request.sampling.max_tokens;
  out.eos_tokens = model.tokenizer().stop_tokens();
  out.ignore_eos = request.sampling.ignore_eos;
  out.prompt_logprobs = request.echo && request.sampling.logprobs.has_value();
  out.sampling = ParamsOf(request.sampling);
  return out;
}

std::optional<ApiError> CheckMessages(const ServedModel& model, const std::vector<ChatMessage>& messages) {
  if (model.chat() == nullptr) {
    return InvalidRequest(
        "messages",
        absl::StrCat(
            "The model '", model.name(),
            "' has no chat template: use /v1/completions, or start the replica with --chat-template FILE."),
        "chat_template_missing");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].opaque_type.empty()) continue;
    return InvalidRequest(absl::StrCat("messages[", i, "].content"),
                          absl::StrCat("This model takes text only; content parts of type '",
                                       messages[i].opaque_type.substr(0, 64), "' are not supported."));
  }
  return std::nullopt;
}

std::optional<ApiError> PlanChat(const ServedModel& model, const GenerationRequest& request,
                                 GenerationPlan& plan) {
  if (auto error = CheckMessages(model, request.messages)) return error;
  auto prompt =
      model.chat()->Encode({&request.messages, request.tools_json, request.canonical.size(), UnixSeconds()});
  if (!prompt.ok()) return InvalidRequest("messages", std::string(prompt.status().message()));
  plan.prompts.push_back({EngineRequestOf(model, request, std::move(prompt->tokens)),
                          std::move(prompt->end_bytes), request.canonical.size(), ""});
  plan.answer_prefix = absl::StrCat("assistant", std::string(1, CanonicalPrompt::kEndOfRole));
  plan.token_field = "messages";
  return std::nullopt;
}

void PlanText(const ServedModel& model, const GenerationRequest& request, const std::string& text,
              GenerationPlan& plan) {
  EncodedPrompt prompt = EncodeText(model.tokenizer(), text);
  plan.typed_bos += prompt.typed_bos ? 1 : 0;
  plan.prompts.push_back({EngineRequestOf(model, request, std::move(prompt.tokens)),
                          std::move(prompt.end_bytes), text.size(), request.echo ? text : ""});
}

// Ids may end inside a character: what is shown of them is text all the same.
std::string TextOf(const ServedModel& model, const std::vector<TokenId>& ids) {
  std::string text;
  AppendValidUtf8(text, model.tokenizer().DecodeBytes(ids));
  return text;
}

std::optional<ApiError> PlanIds(const ServedModel& model, const GenerationRequest& request,
                                const std::vector<TokenId>& ids, GenerationPlan& plan) {
  const int32_t vocabulary = model.tokenizer().vocab_size();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return InvalidRequest("prompt", absl::StrCat("prompt[", i, "]: token ", ids[i],
                                                 " is outside the vocabulary of ", vocabulary, "."));
  }
  std::vector<uint32_t> ends(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ends[i] = static_cast<uint32_t>((i + 1) * sizeof(TokenId));
  plan.prompts.push_back({EngineRequestOf(model, request, ids), std::move(ends), ids.size() * sizeof(TokenId),
                          request.echo ? TextOf(model, ids) : ""});
  return std::nullopt;
}

std::optional<ApiError> PlanCompletions(const ServedModel& model, const GenerationRequest& request,
                                        GenerationPlan& plan) {
  plan.token_field = "prompt";
  for (const std::string& text : request.prompts) PlanText(model, request, text, plan);
  for (const std::vector<TokenId>& ids : request.prompt_ids) {
    if (auto error = PlanIds(model, request, ids, plan)) return error;
  }
  for (const PlannedPrompt& prompt : plan.prompts) {
    if (prompt.request.prompt.empty())
      return InvalidRequest("prompt", "prompt must hold at least one token.");
  }
  return std::nullopt;
}

void Truncate(PlannedPrompt& prompt, int32_t keep) {
  std::vector<TokenId>& tokens = prompt.request.prompt;
  prompt.truncated_tokens = std::max(0, static_cast<int32_t>(tokens.size()) - keep);
  if (prompt.truncated_tokens == 0) return;
  tokens.erase(tokens.begin(), tokens.begin() + prompt.truncated_tokens);
  prompt.end_bytes.clear();
}

}  // namespace

std::optional<ApiError> PlanGeneration(const ServedModel& model, GenerationRequest request,
                                       GenerationPlan& plan) {
  if (!model.Answers(request.model)) return openai::ModelNotFound(request.model);
  const int32_t vocabulary = model.tokenizer().vocab_size();
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token >= vocabulary) {
      return InvalidRequest("logit_bias", absl::StrCat("logit_bias: token ", token,
                                                       " is outside the vocabulary of ", vocabulary, "."));
    }
  }
  plan.stops = request.sampling.stop;
  plan.choices_per_prompt = request.sampling.n;
  auto error = request.route == openai::Route::kChat ? PlanChat(model, request, plan)
                                                     : PlanCompletions(model, request, plan);
  if (error || !request.truncate_prompt_tokens.has_value()) return error;
  Truncate(plan.prompts[0], *request.truncate_prompt_tokens);
  return std::nullopt;
}

}  // namespace kvring::replica
