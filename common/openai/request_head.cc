#include "common/openai/request_head.h"

#include "absl/strings/str_cat.h"
#include "common/openai/json_fields.h"

namespace kvring::openai {
namespace {

class HeadReader {
 public:
  explicit HeadReader(RequestHead& head) : head_(head) {}

  std::optional<ApiError> Read(json::object& object) {
    for (auto entry : object) {
      json::field field;
      if (auto error = std::move(entry).get(field)) return JsonError(error, "");
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) return JsonError(error, "");
      if (auto error = Field(key, field.value())) return error;
    }
    head_.messages_begin = tools_.size();
    head_.canonical = WithToolsFirst();
    head_.system = system_.Take();
    return std::nullopt;
  }

 private:
  std::optional<ApiError> Field(std::string_view key, json::value value) {
    if (key == "model") return OptionalString(value, key, head_.model);
    if (key == "prompt_cache_key") return OptionalString(value, key, head_.prompt_cache_key);
    if (key == "user") return OptionalString(value, key, head_.user);
    if (key == "cache_salt") return OptionalString(value, key, head_.cache_salt);
    if (key == "messages")
      return WalkMessages(value, messages_ = {}, nullptr);  // the last of equal keys counts
    if (key == "system") return WalkSystem(value, system_ = {});
    if (key == "tools") return WalkTools(value, tools_ = {}, nullptr);
    if (key == "prompt") {
      messages_ = {};
      head_.token_ids.clear();
      return Prompt(value);
    }
    if (key == "stream") Lenient(value.get_bool(), head_.stream);
    if (key == "n") Lenient(value.get_int64(), head_.n);
    if (key == "max_tokens" || key == "max_completion_tokens") Lenient(value.get_int64(), head_.max_tokens);
    return std::nullopt;
  }

  // Values of a wrong type are the upstream's to refuse.
  template <class T, class Result>
  static void Lenient(Result&& result, T& out) {
    T read{};
    if (std::forward<Result>(result).get(read) == simdjson::SUCCESS) out = read;
  }

  static std::optional<ApiError> OptionalString(json::value value, std::string_view key, std::string& out) {
    std::string_view text;
    const auto error = value.get_string().get(text);
    if (error == simdjson::INCORRECT_TYPE) return std::nullopt;
    if (error) return JsonError(error, key);
    out = text;
    return std::nullopt;
  }

  std::optional<ApiError> Prompt(json::value value) {
    json::json_type type;
    if (auto error = value.type().get(type)) return JsonError(error, "prompt");
    if (type == json::json_type::string) return PromptText(value);
    if (type != json::json_type::array) return std::nullopt;
    json::array array;
    if (auto error = value.get_array().get(array)) return JsonError(error, "prompt");
    return PromptArray(array);
  }

  std::optional<ApiError> PromptText(json::value value) {
    std::string_view text;
    if (auto error = value.get_string().get(text)) return JsonError(error, "prompt");
    messages_.AddText(text);
    return std::nullopt;
  }

  // [1,2,3] is one prompt of ids; of ["a","b"] and [[1,2],[3]] the first decides the route.
  std::optional<ApiError> PromptArray(json::array array) {
    for (auto element : array) {
      json::value value;
      if (auto error = std::move(element).get(value)) return JsonError(error, "prompt");
      json::json_type type;
      if (auto error = value.type().get(type)) return JsonError(error, "prompt");
      if (type == json::json_type::string) return PromptText(value);
      if (type == json::json_type::array) return Prompt(value);
      int64_t id = 0;
      if (value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) return std::nullopt;
      head_.token_ids.push_back(static_cast<TokenId>(id));
    }
    return std::nullopt;
  }

  // Canonically tools stand before the messages, wherever they stand in the body.
  std::string WithToolsFirst() {
    if (tools_.size() == 0) return messages_.Take();
    std::string bytes = tools_.Take();
    bytes += messages_.bytes();
    return bytes;
  }

  RequestHead& head_;
  CanonicalPrompt tools_;
  CanonicalPrompt system_;
  CanonicalPrompt messages_;
};

}  // namespace

std::optional<ApiError> ReadRequestHead(std::string& body, RequestHead& head) {
  json::document document;
  if (auto error = OpenDocument(body, document)) return JsonError(error, "");
  json::object object;
  if (document.get_object().get(object)) return InvalidRequest("", "The request body must be a JSON object.");
  return HeadReader(head).Read(object);
}

}  // namespace kvring::openai
