#include "replica/server/http_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/json_text.h"
#include "common/openai/generation_request.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "replica/server/http_sink.h"

namespace kvring::replica {
namespace {

using net::HttpResponse;
using net::JsonResponse;

HttpResponse ErrorResponse(const openai::ApiError& error) {
  return JsonResponse(error.http_status, error.ToJson());
}

HttpResponse PlainText(int status, std::string text) {
  return {status, {{"Content-Type", "text/plain; version=0.0.4"}}, std::move(text)};
}

HttpSink::Answer AnswerOf(const openai::GenerationRequest& request, const ServedModel& model) {
  const bool chat = request.route == openai::Route::kChat;
  HttpSink::Answer answer;
  answer.identity = {request.route,
                     absl::StrCat(chat ? "chatcmpl-" : "cmpl-", absl::Hex(RandomSeed(), absl::kZeroPad16)),
                     UnixSeconds(), request.model.empty() ? model.name() : request.model};
  answer.stream = request.stream;
  answer.include_usage = request.include_usage;
  answer.logprobs = request.sampling.logprobs.has_value();
  return answer;
}

}  // namespace

HttpService::HttpService(EngineLoop& loop, const ServedModel& model, const MetricRegistry& metrics,
                         std::function<bool()> ready)
    : loop_(loop), model_(model), metrics_(metrics), ready_(std::move(ready)), started_(UnixSeconds()) {}

void HttpService::Handle(net::HttpRequest request, net::ResponseWriter writer) {
  const std::string path(request.path());
  const bool post = request.method == "POST";
  if (path == "/v1/chat/completions" && post)
    return Generate(openai::Route::kChat, std::move(request), std::move(writer));
  if (path == "/v1/completions" && post)
    return Generate(openai::Route::kCompletions, std::move(request), std::move(writer));
  if (path == "/tokenize" && post) return writer.Reply(Tokenize(std::move(request.body)));
  if (path == "/admin/v1/cache/reset" && post) return ResetCache(request, std::move(writer));
  if (path == "/v1/embeddings" && post) {
    return writer.Reply(
        ErrorResponse({501, "invalid_request_error", "unsupported", "", "This model gives no embeddings."}));
  }
  if (request.method == "GET") return writer.Reply(Get(path));
  writer.Reply(ErrorResponse(
      {404, "invalid_request_error", "not_found", "",
       absl::StrCat("There is no ", request.method.substr(0, 16), " ", path.substr(0, 128), " here.")}));
}

void HttpService::Generate(openai::Route route, net::HttpRequest http, net::ResponseWriter writer) {
  const auto encoding = http.header("content-encoding");
  if (encoding.has_value() && *encoding != "identity") {
    return writer.Reply(ErrorResponse({415, "invalid_request_error", "unsupported_encoding", "",
                                       "Content-Encoding is not supported here."}));
  }
  openai::GenerationRequest request;
  if (auto error = openai::ReadGenerationRequest(route, http.body, request))
    return writer.Reply(ErrorResponse(*error));
  HttpSink::Answer answer = AnswerOf(request, model_);
  GenerationPlan plan;
  if (auto error = PlanGeneration(model_, std::move(request), plan))
    return writer.Reply(ErrorResponse(*error));
  const auto sink = std::make_shared<HttpSink>(std::move(answer), std::move(writer));
  const GenerationId id = loop_.Submit(std::move(plan), sink);
  sink->writer().OnDisconnect([this, id] { loop_.Cancel(id); });
}

void HttpService::ResetCache(const net::HttpRequest& request, net::ResponseWriter writer) {
  if (!request.peer_is_loopback) {
    return writer.Reply(ErrorResponse({403, "invalid_request_error", "forbidden", "",
                                       "The replica's admin API answers loopback peers only."}));
  }
  // Shared only because a std::function must be copyable.
  const auto reply = std::make_shared<net::ResponseWriter>(std::move(writer));
  loop_.ResetCache([reply](const absl::StatusOr<int64_t>& dropped) {
    reply->Reply(dropped.ok() ? JsonResponse(200, absl::StrCat("{\"dropped_tokens\":", *dropped, "}"))
                              : ErrorResponse(openai::FromStatus(dropped.status())));
  });
}

HttpResponse HttpService::Get(std::string_view path) const {
  if (path == "/health" || path == "/healthz") return PlainText(200, "ok\n");
  if (path == "/readyz") return ready_() ? PlainText(200, "ready\n") : PlainText(503, "not ready\n");
  if (path == "/metrics") return PlainText(200, metrics_.Expose());
  if (path == "/v1/models") {
    const openai::ModelEntry entry{model_.name(), loop_.max_tokens_per_sequence(), model_.chat() != nullptr};
    return JsonResponse(200, openai::ModelList(std::span(&entry, 1), started_));
  }
  return ErrorResponse({404, "invalid_request_error", "not_found", "",
                        absl::StrCat("There is no GET ", std::string(path.substr(0, 128)), " here.")});
}

// {"prompt": "…"} or {"messages": […]} to {"count": n, "max_model_len": m, "tokens": […]}, as vLLM answers
// it.
HttpResponse HttpService::Tokenize(std::string body) const {
  openai::GenerationRequest request;
  const bool chat = body.find("\"messages\"") != std::string::npos;
  const auto route = chat ? openai::Route::kChat : openai::Route::kCompletions;
  if (auto error = openai::ReadGenerationRequest(route, body, request)) return ErrorResponse(*error);
  GenerationPlan plan;
  if (auto error = PlanGeneration(model_, std::move(request), plan)) return ErrorResponse(*error);
  const std::vector<TokenId>& tokens = plan.prompts[0].request.prompt;
  std::string out = absl::StrCat("{\"count\":", tokens.size(),
                                 ",\"max_model_len\":", loop_.max_tokens_per_sequence(), ",\"tokens\":[");
  for (size_t i = 0; i < tokens.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ",", tokens[i]);
  return JsonResponse(200, out + "]}");
}

}  // namespace kvring::replica
