#include "replica/server/grpc_messages.h"

#include <algorithm>

#include "common/canonical_prompt.h"

namespace kvring::replica {
namespace {

void ReadSampling(const v1::Sampling& message, openai::SamplingFields& sampling) {
  if (message.has_max_tokens()) sampling.max_tokens = message.max_tokens();
  if (message.has_temperature()) sampling.temperature = message.temperature();
  if (message.has_top_k()) sampling.top_k = message.top_k();
  if (message.has_top_p()) sampling.top_p = message.top_p();
  if (message.has_seed()) sampling.seed = message.seed();
  if (message.has_n()) sampling.n = message.n();
  sampling.stop.assign(message.stop().begin(), message.stop().end());
  sampling.ignore_eos = message.ignore_eos();
  if (message.has_frequency_penalty()) sampling.frequency_penalty = message.frequency_penalty();
  if (message.has_presence_penalty()) sampling.presence_penalty = message.presence_penalty();
  if (message.has_min_tokens()) sampling.min_tokens = message.min_tokens();
  if (message.has_logprobs()) sampling.logprobs = message.logprobs();
}

void ReadMessages(const v1::Messages& message, openai::GenerationRequest& request) {
  CanonicalPrompt canonical;
  request.tools_json = message.tools_json();
  if (!request.tools_json.empty()) canonical.AddTools(request.tools_json);
  for (const v1::Message& turn : message.messages()) {
    ChatMessage& out = request.messages.emplace_back();
    out.role = turn.role();
    out.content = turn.content();
    out.role_begin = canonical.size();
    canonical.BeginMessage(out.role);
    out.content_begin = canonical.size();
    canonical.AddText(out.content);
    canonical.EndMessage();
    out.end = canonical.size();
  }
  request.canonical = canonical.Take();
}

openai::CacheClass CacheClassOf(v1::CacheRetention::Class cache_class) {
  switch (cache_class) {
    case v1::CacheRetention::LOW:
      return openai::CacheClass::kLow;
    case v1::CacheRetention::HIGH:
      return openai::CacheClass::kHigh;
    case v1::CacheRetention::PINNED:
      return openai::CacheClass::kPinned;
    default:
      return openai::CacheClass::kNormal;
  }
}

std::optional<openai::ApiError> ReadRetention(const v1::CacheRetention& message,
                                              openai::CacheRetentionFields& retention) {
  if (!v1::CacheRetention::Class_IsValid(message.class_()))
    return openai::InvalidRequest("cache_retention.class", "cache_retention.class is unknown.");
  const uint32_t bounded = std::min<uint32_t>(message.ttl_seconds(), INT32_MAX);
  retention = {CacheClassOf(message.class_()), static_cast<int32_t>(bounded)};
  return openai::CheckCacheRetention(retention);
}

std::optional<openai::ApiError> ReadBody(const v1::OpenAiBody& message, openai::GenerationRequest& request) {
  const bool chat = message.route() == "/v1/chat/completions";
  if (!chat && message.route() != "/v1/completions") {
    return openai::InvalidRequest("route", "route must be /v1/chat/completions or /v1/completions.");
  }
  std::string body = message.body();
  return openai::ReadGenerationRequest(chat ? openai::Route::kChat : openai::Route::kCompletions, body,
                                       request);
}

std::optional<openai::ApiError> ReadFields(const v1::GenerateRequest& message,
                                           openai::GenerationRequest& request) {
  switch (message.input_case()) {
    case v1::GenerateRequest::kTokenIds:
      request.route = openai::Route::kCompletions;
      request.prompt_ids.emplace_back(message.token_ids().ids().begin(), message.token_ids().ids().end());
      break;
    case v1::GenerateRequest::kText:
      request.route = openai::Route::kCompletions;
      request.prompts.push_back(message.text());
      break;
    case v1::GenerateRequest::kMessages:
      request.route = openai::Route::kChat;
      ReadMessages(message.messages(), request);
      if (request.messages.empty())
        return openai::InvalidRequest("messages", "messages must hold at least one message.");
      break;
    default:
      return openai::InvalidRequest("input", "One of openai_body, token_ids, text and messages must be set.");
  }
  ReadSampling(message.sampling(), request.sampling);
  return openai::CheckSampling(request.sampling, /*max_tokens_zero_allowed=*/false);
}

}  // namespace

std::optional<openai::ApiError> ReadGenerateRequest(const v1::GenerateRequest& message,
                                                    openai::GenerationRequest& request) {
  const bool body = message.input_case() == v1::GenerateRequest::kOpenaiBody;
  if (auto error = body ? ReadBody(message.openai_body(), request) : ReadFields(message, request))
    return error;
  if (!message.model().empty()) request.model = message.model();
  if (!message.cache_salt().empty()) request.cache_salt = message.cache_salt();
  if (message.truncate_prompt_tokens() > 0)
    request.truncate_prompt_tokens = std::min<uint32_t>(message.truncate_prompt_tokens(), INT32_MAX);
  if (message.priority() != 0) request.priority = message.priority();
  if (message.has_cache_retention()) return ReadRetention(message.cache_retention(), request.cache_retention);
  return std::nullopt;
}

v1::GenerateResponse ToMessage(const AdmittedInfo& info) {
  v1::GenerateResponse out;
  v1::Admitted& admitted = *out.mutable_admitted();
  admitted.set_prompt_tokens(info.prompt_tokens);
  admitted.set_cached_tokens(info.cached_tokens);
  admitted.mutable_block_end_bytes()->Add(info.block_end_bytes.begin(), info.block_end_bytes.end());
  return out;
}

v1::GenerateResponse ToMessage(const GenerationDelta& delta) {
  v1::GenerateResponse out;
  v1::Delta& message = *out.mutable_delta();
  message.set_index(delta.choice.index);
  message.set_text(std::string(delta.choice.text));
  message.set_finish_reason(std::string(delta.choice.finish_reason));
  message.mutable_token_ids()->Add(delta.tokens.begin(), delta.tokens.end());
  for (const openai::TokenLogprob& token : delta.choice.logprobs) {
    v1::TokenLogprob& logprob = *message.add_logprobs();
    logprob.set_token(token.token);
    logprob.set_logprob(static_cast<float>(token.logprob));
    for (const openai::TopLogprob& top : token.top) {
      v1::TopLogprob& alternative = *logprob.add_top();
      alternative.set_token(top.token);
      alternative.set_logprob(static_cast<float>(top.logprob));
    }
  }
  return out;
}

v1::GenerateResponse ToMessage(const DoneInfo& info) {
  v1::GenerateResponse out;
  v1::Usage& usage = *out.mutable_usage();
  usage.set_prompt_tokens(info.usage.prompt_tokens);
  usage.set_completion_tokens(info.usage.completion_tokens);
  usage.set_cached_tokens(info.usage.cached_tokens);
  usage.set_truncated_tokens(info.usage.truncated_tokens);
  const std::vector<uint32_t> ends = info.block_end_bytes();
  usage.mutable_block_end_bytes()->Add(ends.begin(), ends.end());
  return out;
}

v1::GenerateResponse ToMessage(const openai::ApiError& error) {
  v1::GenerateResponse out;
  v1::Error& message = *out.mutable_error();
  message.set_http_status(error.http_status);
  message.set_type(error.type);
  message.set_code(error.code);
  message.set_param(error.param);
  message.set_message(error.message);
  return out;
}

v1::LoadReport ToMessage(const LoopLoad& load) {
  v1::LoadReport out;
  out.set_running(load.engine.running);
  out.set_waiting(load.engine.waiting);
  out.set_kv_used_tokens(load.engine.kv_used_tokens);
  out.set_kv_cached_tokens(load.engine.kv_cached_tokens);
  out.set_pending_prefill_tokens(load.engine.pending_prefill_tokens);
  out.set_prefill_tokens_per_second(load.prefill_tokens_per_second);
  out.set_decode_step_seconds(load.decode_step_seconds);
  return out;
}

grpc::Status ToStatus(const openai::ApiError& error) {
  return {static_cast<grpc::StatusCode>(openai::StatusCodeOfHttp(error.http_status)),
          openai::GrpcStatusText(error)};
}

}  // namespace kvring::replica
