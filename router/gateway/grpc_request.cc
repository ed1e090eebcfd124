#include "router/gateway/grpc_request.h"

#include <algorithm>

#include "common/canonical_prompt.h"
#include "common/openai/request_head.h"

namespace kvring::router {
namespace {

std::optional<openai::ApiError> ReadBody(const v1::OpenAiBody& message, GrpcRequest& request) {
  request.chat = message.route() == "/v1/chat/completions";
  if (!request.chat && message.route() != "/v1/completions") {
    return openai::InvalidRequest("route", "route must be /v1/chat/completions or /v1/completions.");
  }
  std::string body = message.body();
  openai::RequestHead head;
  if (auto error = openai::ReadRequestHead(body, head)) return error;
  request.model = std::move(head.model);
  request.session = !head.prompt_cache_key.empty() ? std::move(head.prompt_cache_key) : std::move(head.user);
  request.max_output_tokens = static_cast<int32_t>(std::clamp<int64_t>(head.max_tokens, 0, INT32_MAX));
  request.canonical = std::move(head.canonical);
  request.tokens = std::move(head.token_ids);
  request.salt = std::move(head.cache_salt);
  return std::nullopt;
}

std::string CanonicalOf(const v1::Messages& messages) {
  CanonicalPrompt canonical;
  if (!messages.tools_json().empty()) canonical.AddTools(messages.tools_json());
  for (const v1::Message& message : messages.messages()) {
    canonical.BeginMessage(message.role());
    canonical.AddText(message.content());
    canonical.EndMessage();
  }
  return canonical.Take();
}

std::optional<openai::ApiError> ReadFields(const v1::GenerateRequest& message, GrpcRequest& request) {
  request.max_output_tokens = std::max(message.sampling().max_tokens(), 0);
  request.chat = message.has_messages();
  if (message.has_token_ids()) {
    request.tokens.assign(message.token_ids().ids().begin(), message.token_ids().ids().end());
    if (request.tokens.empty())
      return openai::InvalidRequest("token_ids", "token_ids must hold at least one token.");
  } else if (message.has_text()) {
    request.canonical = message.text();
  } else if (message.has_messages()) {
    if (message.messages().messages().empty())
      return openai::InvalidRequest("messages", "messages must hold at least one message.");
    request.canonical = CanonicalOf(message.messages());
  } else {
    return openai::InvalidRequest("input", "One of openai_body, token_ids, text and messages must be set.");
  }
  return std::nullopt;
}

}  // namespace

PromptKey GrpcRequest::KeyFor(std::string_view resolved_model) const {
  const CacheIdentity identity{.model = resolved_model, .salt = salt};
  if (!tokens.empty()) return MakePromptKey(identity, std::span<const TokenId>(tokens));
  return MakePromptKey(identity, canonical);
}

std::optional<openai::ApiError> ReadGrpcRequest(const v1::GenerateRequest& message, GrpcRequest& request) {
  if (auto error =
          message.has_openai_body() ? ReadBody(message.openai_body(), request) : ReadFields(message, request))
    return error;
  if (!message.model().empty()) request.model = message.model();
  if (!message.session_id().empty()) request.session = message.session_id();
  if (!message.cache_salt().empty()) request.salt = message.cache_salt();
  return std::nullopt;
}

grpc::Status StatusOf(const openai::ApiError& error) {
  return {static_cast<grpc::StatusCode>(openai::StatusCodeOfHttp(error.http_status)),
          openai::GrpcStatusText(error)};
}

}  // namespace kvring::router
