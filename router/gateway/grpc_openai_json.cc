#include "router/gateway/grpc_openai_json.h"

#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "router/gateway/grpc_http_bridge.h"

namespace kvring::router {
namespace {

namespace json = boost::json;

const json::value* Member(const json::value* value, std::string_view key) {
  const json::object* object = value ? value->if_object() : nullptr;
  return object ? object->if_contains({key.data(), key.size()}) : nullptr;
}

std::string TextOf(const json::value* value) {
  const json::string* text = value ? value->if_string() : nullptr;
  return text ? std::string(text->data(), text->size()) : "";
}

int32_t IntOf(const json::value* value, int32_t fallback) {
  const int64_t* number = value ? value->if_int64() : nullptr;
  return number ? static_cast<int32_t>(*number) : fallback;
}

v1::GenerateResponse ErrorEvent(int status, const json::value* error) {
  v1::GenerateResponse event;
  v1::Error& out = *event.mutable_error();
  out.set_http_status(status);
  out.set_type(TextOf(Member(error, "type")));
  out.set_code(TextOf(Member(error, "code")));
  out.set_param(TextOf(Member(error, "param")));
  out.set_message(TextOf(Member(error, "message")));
  if (out.message().empty()) out.set_message(absl::StrCat("The replica answered with status ", status, "."));
  return event;
}

void ReadUsage(const json::value* value, v1::Usage& usage) {
  if (Member(value, "prompt_tokens") == nullptr) return;
  usage.set_prompt_tokens(IntOf(Member(value, "prompt_tokens"), 0));
  usage.set_completion_tokens(IntOf(Member(value, "completion_tokens"), 0));
  usage.set_cached_tokens(IntOf(Member(Member(value, "prompt_tokens_details"), "cached_tokens"), -1));
}

v1::GenerateResponse DeltaOf(const json::value& choice) {
  v1::GenerateResponse event;
  v1::Delta& delta = *event.mutable_delta();
  delta.set_index(IntOf(Member(&choice, "index"), 0));
  delta.set_finish_reason(TextOf(Member(&choice, "finish_reason")));
  for (const char* part : {"delta", "message"}) {
    if (const json::value* content = Member(Member(&choice, part), "content"))
      delta.set_text(TextOf(content));
  }
  if (const json::value* text = Member(&choice, "text")) delta.set_text(TextOf(text));
  return event;
}

void AppendSampling(json::object& body, const v1::Sampling& sampling, bool chat) {
  if (sampling.has_max_tokens()) body["max_tokens"] = sampling.max_tokens();
  if (sampling.has_temperature()) body["temperature"] = sampling.temperature();
  if (sampling.has_top_k()) body["top_k"] = sampling.top_k();
  if (sampling.has_top_p()) body["top_p"] = sampling.top_p();
  if (sampling.has_seed()) body["seed"] = sampling.seed();
  if (sampling.has_n()) body["n"] = sampling.n();
  if (sampling.stop_size() > 0) body["stop"] = json::array(sampling.stop().begin(), sampling.stop().end());
  if (sampling.ignore_eos()) body["ignore_eos"] = true;
  if (sampling.has_frequency_penalty()) body["frequency_penalty"] = sampling.frequency_penalty();
  if (sampling.has_presence_penalty()) body["presence_penalty"] = sampling.presence_penalty();
  if (sampling.has_min_tokens()) body["min_tokens"] = sampling.min_tokens();
  if (!sampling.has_logprobs()) return;
  if (chat) body["logprobs"] = true;
  body[chat ? "top_logprobs" : "logprobs"] = sampling.logprobs();
}

void AppendMessages(json::object& body, const v1::Messages& messages) {
  json::array& out = body["messages"].emplace_array();
  for (const v1::Message& message : messages.messages())
    out.push_back({{"role", message.role()}, {"content", message.content()}});
  if (messages.tools_json().empty()) return;
  boost::system::error_code error;
  json::value tools = json::parse(messages.tools_json(), error);
  if (!error) body["tools"] = std::move(tools);
}

}  // namespace

v1::Usage UnknownUsage() {
  v1::Usage usage;
  usage.set_cached_tokens(-1);
  return usage;
}

std::vector<v1::GenerateResponse> ReadOpenAiAnswer(std::string_view text, v1::Usage& usage) {
  boost::system::error_code parse_error;
  const json::value value = json::parse({text.data(), text.size()}, parse_error);
  if (parse_error || !value.is_object()) return {ReadOpenAiError(502, "")};
  if (const json::value* error = Member(&value, "error"); error != nullptr && !error->is_null())
    return {ErrorEvent(500, error)};
  ReadUsage(Member(&value, "usage"), usage);
  std::vector<v1::GenerateResponse> events;
  const json::value* choices = Member(&value, "choices");
  if (choices == nullptr || !choices->is_array()) return events;
  for (const json::value& choice : choices->get_array()) events.push_back(DeltaOf(choice));
  return events;
}

v1::GenerateResponse ReadOpenAiError(int status, std::string_view body) {
  boost::system::error_code parse_error;
  const json::value value = json::parse({body.data(), body.size()}, parse_error);
  return ErrorEvent(status, parse_error ? nullptr : Member(&value, "error"));
}

std::string OpenAiBodyOf(const v1::GenerateRequest& request, std::string_view model) {
  if (request.has_openai_body()) return request.openai_body().body();
  json::object body;
  if (!model.empty()) body["model"] = json::string_view(model.data(), model.size());
  if (request.has_token_ids())
    body["prompt"] = json::array(request.token_ids().ids().begin(), request.token_ids().ids().end());
  if (request.has_text()) body["prompt"] = request.text();
  if (request.has_messages()) AppendMessages(body, request.messages());
  AppendSampling(body, request.sampling(), request.has_messages());
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (!request.cache_salt().empty()) body["cache_salt"] = request.cache_salt();
  return json::serialize(body);
}

}  // namespace kvring::router
