#include "router/gateway/grpc_answer.h"

#include "absl/strings/str_cat.h"
#include "common/canonical_prompt.h"
#include "common/net/http_message.h"
#include "common/openai/generation_request.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"

namespace kvring::router {
namespace {

struct Shape {
  bool include_usage = false;
  bool logprobs = false;
};

// Only bodies that speak of either are read as a whole; one that does not hold up gets its error from the
// replica.
Shape ShapeOf(openai::Route route, std::string_view body) {
  if (body.find("include_usage") == std::string_view::npos && body.find("logprobs") == std::string_view::npos)
    return {};
  std::string copy(body);
  openai::GenerationRequest request;
  if (openai::ReadGenerationRequest(route, copy, request)) return {};
  return {request.include_usage, request.sampling.logprobs.has_value()};
}

std::vector<openai::TokenLogprob> LogprobsOf(const v1::Delta& delta) {
  std::vector<openai::TokenLogprob> out;
  for (const v1::TokenLogprob& token : delta.logprobs()) {
    openai::TokenLogprob& logprob =
        out.emplace_back(openai::TokenLogprob{token.token(), token.logprob(), {}});
    for (const v1::TopLogprob& top : token.top()) logprob.top.push_back({top.token(), top.logprob()});
  }
  return out;
}

}  // namespace

AdmittedReport ReportOf(const v1::Admitted& admitted) {
  return {.prompt_tokens = admitted.prompt_tokens(),
          .cached_tokens = admitted.cached_tokens(),
          .block_end_bytes = {admitted.block_end_bytes().data(),
                              static_cast<size_t>(admitted.block_end_bytes_size())}};
}

UsageReport ReportOf(const v1::Usage& usage, std::string_view generated) {
  return {
      .prompt_tokens = usage.prompt_tokens(),
      .completion_tokens = usage.completion_tokens(),
      .cached_tokens = usage.cached_tokens(),
      .block_end_bytes = {usage.block_end_bytes().data(), static_cast<size_t>(usage.block_end_bytes_size())},
      .generated_bytes = generated};
}

openai::ApiError ErrorOf(const v1::Error& error) {
  const int status = error.http_status() >= 400 && error.http_status() < 600 ? error.http_status() : 500;
  return {status, error.type(), error.code(), error.param(), error.message()};
}

OutcomeClass OutcomeOfError(int http_status) {
  if (http_status == 429 || http_status == 503) return OutcomeClass::kBackpressure;
  if (http_status >= 500 && http_status != 501) return OutcomeClass::kReplicaError;
  return OutcomeClass::kClientError;
}

std::string AnswerPrefix(bool chat) { return chat ? std::string(kChatAnswerStart) : ""; }

GrpcAnswer::GrpcAnswer(const UpstreamRequest& request, const std::string& replica_model)
    : to_head_request_(request.to_head_request),
      generated_(AnswerPrefix(request.route == GenerationRoute::kChat)) {
  static const openai::RequestHead kNoHead;
  const openai::RequestHead& head = request.openai != nullptr ? *request.openai : kNoHead;
  const bool chat = request.route == GenerationRoute::kChat;
  const openai::Route openai_route = chat ? openai::Route::kChat : openai::Route::kCompletions;
  openai::AnswerIdentity identity{
      openai_route, absl::StrCat(chat ? "chatcmpl-" : "cmpl-", absl::Hex(RandomSeed(), absl::kZeroPad16)),
      UnixSeconds(), head.model.empty() ? replica_model : head.model};
  const Shape shape = ShapeOf(openai_route, request.body);
  if (head.stream) {
    stream_.emplace(std::move(identity), shape.include_usage, shape.logprobs);
  } else {
    whole_.emplace(std::move(identity), shape.logprobs);
  }
}

bool GrpcAnswer::Take(const v1::GenerateResponse& event, AnswerSink& sink, const bool& ended) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kAdmitted:
      sink.OnAdmitted(ReportOf(event.admitted()));
      return false;
    case v1::GenerateResponse::kDelta:
      TakeDelta(event.delta(), sink, ended);
      return false;
    case v1::GenerateResponse::kUsage:
      TakeUsage(event.usage(), sink, ended);
      return true;
    case v1::GenerateResponse::kError:
      TakeError(event.error(), sink, ended);
      return true;
    case v1::GenerateResponse::EVENT_NOT_SET:
      return false;  // of a newer replica
  }
  return false;
}

void GrpcAnswer::StartStream(AnswerSink& sink) {
  static constexpr net::HeaderField kFields[] = {
      {"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  head_told_ = true;
  sink.OnHead({.status = 200, .reason = "OK", .fields = kFields, .framing = AnswerFraming::kPlain});
}

void GrpcAnswer::TakeDelta(const v1::Delta& delta, AnswerSink& sink, const bool& ended) {
  if (delta.index() == 0) generated_ += delta.text();
  const std::vector<openai::TokenLogprob> logprobs = LogprobsOf(delta);
  const openai::ChoiceDelta choice{delta.index(), delta.text(), delta.finish_reason(), logprobs};
  if (whole_) return whole_->Delta(choice);
  if (!head_told_) StartStream(sink);
  if (ended) return;
  buffer_.clear();
  stream_->Delta(buffer_, choice);
  const std::string_view data[] = {buffer_};
  sink.OnBody({.wire = buffer_, .data = data});
}

void GrpcAnswer::TakeUsage(const v1::Usage& usage, AnswerSink& sink, const bool& ended) {
  const openai::UsageCounts counts{usage.prompt_tokens(), usage.completion_tokens(), usage.cached_tokens(),
                                   usage.truncated_tokens()};
  if (whole_) {
    Whole(200, false, whole_->Finish(counts), sink, ended);
  } else {
    if (!head_told_) StartStream(sink);
    if (ended) return;
    buffer_.clear();
    stream_->Finish(buffer_, counts);
    const std::string_view data[] = {buffer_};
    sink.OnBody({.wire = buffer_, .data = data});
  }
  if (!ended) sink.OnEnd(ReportOf(usage, generated_));
}

void GrpcAnswer::TakeError(const v1::Error& message, AnswerSink& sink, const bool& ended) {
  const openai::ApiError error = ErrorOf(message);
  if (!head_told_) {
    Whole(error.http_status, error.http_status == 429 || error.http_status == 503, error.ToJson(), sink,
          ended);
  } else {
    buffer_.clear();
    openai::StreamWriter::Error(buffer_, error);
    const std::string_view data[] = {buffer_};
    sink.OnBody({.wire = buffer_, .data = data});
  }
  if (!ended) sink.OnEnd(std::nullopt);
}

void GrpcAnswer::Whole(int status, bool retry_later, std::string_view body, AnswerSink& sink,
                       const bool& ended) {
  const std::string length = absl::StrCat(body.size());
  std::vector<net::HeaderField> fields = {{"Content-Type", "application/json"}, {"Content-Length", length}};
  if (retry_later) fields.push_back({"Retry-After", "1"});
  head_told_ = true;
  sink.OnHead({.status = status,
               .reason = net::ReasonPhrase(status),
               .fields = fields,
               .framing = AnswerFraming::kLength});
  if (ended || to_head_request_) return;
  const std::string_view data[] = {body};
  sink.OnBody({.wire = body, .data = data});
}

}  // namespace kvring::router
