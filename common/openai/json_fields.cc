#include "common/openai/json_fields.h"

#include "absl/strings/str_cat.h"
#include "common/json_text.h"
#include "common/openai/request_head.h"

namespace kvring::openai {
namespace {

// "messages[3].content"; "system" for the field of that name
constexpr size_t kSystemField = std::string::npos;
std::string FieldPath(size_t message, const char* field) {
  if (message == kSystemField) return "system";
  return absl::StrCat("messages[", message, "].", field);
}

std::optional<ApiError> CheckOpaque(std::string_view raw, const std::string& path) {
  if (!HasLoneSurrogate(raw)) return std::nullopt;
  return InvalidRequest(path,
                        absl::StrCat(path, " contains a lone surrogate escape; text must be valid Unicode."));
}

std::string_view TrimSpace(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return end == std::string_view::npos ? std::string_view{} : text.substr(0, end + 1);
}

class MessageWalker {
 public:
  MessageWalker(CanonicalPrompt& canonical, std::vector<ChatMessage>* out)
      : canonical_(canonical), out_(out) {}

  std::optional<ApiError> WalkSystem(json::value value) {
    json::json_type type;
    if (auto error = value.type().get(type)) return JsonError(error, "system");
    // Of another type it is the upstream's to refuse.
    if (type != json::json_type::string && type != json::json_type::array) return std::nullopt;
    index_ = kSystemField;
    canonical_.BeginMessage("system");
    if (auto error = ContentValue(value)) return error;
    canonical_.EndMessage();
    return std::nullopt;
  }

  std::optional<ApiError> Walk(json::value value) {
    json::array array;
    if (auto error = value.get_array().get(array)) return JsonError(error, "messages");
    for (auto element : array) {
      json::object object;
      if (auto error = element.get_object().get(object))
        return JsonError(error, absl::StrCat("messages[", index_, "]"));
      if (auto error = Message(object)) return error;
      ++index_;
    }
    return std::nullopt;
  }

 private:
  std::optional<ApiError> Message(json::object& object) {
    std::string_view role;
    if (auto error = object.find_field_unordered("role").get_string().get(role)) {
      return JsonError(error, FieldPath(index_, "role"));
    }
    message_ = {};
    message_.role_begin = canonical_.size();
    message_.role = role;
    canonical_.BeginMessage(role);
    message_.content_begin = canonical_.size();
    if (auto error = Content(object)) return error;
    if (auto error = Extra(object, "name", message_.name)) return error;
    if (auto error = Extra(object, "tool_calls", message_.tool_calls)) return error;
    if (auto error = Extra(object, "tool_call_id", message_.tool_call_id)) return error;
    canonical_.EndMessage();
    message_.end = canonical_.size();
    if (out_ != nullptr) out_->push_back(std::move(message_));
    return std::nullopt;
  }

  std::optional<ApiError> Content(json::object& object) {
    json::value content;
    const auto found = object.find_field_unordered("content").get(content);
    if (found == simdjson::NO_SUCH_FIELD) return std::nullopt;
    if (found) return JsonError(found, FieldPath(index_, "content"));
    return ContentValue(content);
  }

  std::optional<ApiError> ContentValue(json::value content) {
    json::json_type type;
    if (auto error = content.type().get(type)) return JsonError(error, FieldPath(index_, "content"));
    switch (type) {
      case json::json_type::null:
        return std::nullopt;
      case json::json_type::string:
        return Text(content, FieldPath(index_, "content"));
      case json::json_type::array:
        return Parts(content);
      default:
        return InvalidRequest(
            FieldPath(index_, "content"),
            absl::StrCat(FieldPath(index_, "content"), " must be a string, an array of parts or null."));
    }
  }

  std::optional<ApiError> Text(json::value value, const std::string& path) {
    std::string_view text;
    if (auto error = value.get_string().get(text)) return JsonError(error, path);
    canonical_.AddText(text);
    if (out_ != nullptr) message_.content.append(text);
    return std::nullopt;
  }

  std::optional<ApiError> Parts(json::value content) {
    json::array parts;
    if (auto error = content.get_array().get(parts)) return JsonError(error, FieldPath(index_, "content"));
    size_t part_index = 0;
    for (auto element : parts) {
      const std::string path = absl::StrCat(FieldPath(index_, "content"), "[", part_index++, "]");
      json::object part;
      if (auto error = element.get_object().get(part)) return JsonError(error, path);
      if (auto error = Part(part, path)) return error;
    }
    return std::nullopt;
  }

  std::optional<ApiError> Part(json::object& part, const std::string& path) {
    std::string_view type;
    if (auto error = part.find_field_unordered("type").get_string().get(type))
      return JsonError(error, path + ".type");
    if (type == "text") {
      json::value text;
      if (auto error = part.find_field_unordered("text").get(text)) return JsonError(error, path + ".text");
      return Text(text, path + ".text");
    }
    if (message_.opaque_type.empty()) message_.opaque_type = type;
    part.reset();
    std::string_view raw;
    if (auto error = part.raw_json().get(raw)) return JsonError(error, path);
    canonical_.AddOpaque(raw);
    return CheckOpaque(raw, path);
  }

  std::optional<ApiError> Extra(json::object& object, const char* field, std::string& out) {
    json::value value;
    const auto found = object.find_field_unordered(field).get(value);
    if (found == simdjson::NO_SUCH_FIELD) return std::nullopt;
    std::string_view raw;
    if (auto error = found ? found : RawJson(value, raw)) return JsonError(error, FieldPath(index_, field));
    if (raw == "null") return std::nullopt;
    canonical_.AddOpaque(raw);
    if (out_ != nullptr) out = raw;
    return CheckOpaque(raw, FieldPath(index_, field));
  }

  CanonicalPrompt& canonical_;
  std::vector<ChatMessage>* out_;
  ChatMessage message_;
  size_t index_ = 0;
};

}  // namespace

simdjson::error_code RawJson(json::value value, std::string_view& raw) {
  json::json_type type;
  if (auto error = value.type().get(type)) return error;
  if (type == json::json_type::object) {
    json::object object;
    if (auto error = value.get_object().get(object)) return error;
    if (auto error = object.raw_json().get(raw)) return error;
  } else if (type == json::json_type::array) {
    json::array array;
    if (auto error = value.get_array().get(array)) return error;
    if (auto error = array.raw_json().get(raw)) return error;
  } else {
    raw = value.raw_json_token();
  }
  raw = TrimSpace(raw);  // simdjson's goes up to the next token
  return simdjson::SUCCESS;
}

ApiError JsonError(simdjson::error_code error, std::string_view param) {
  const std::string field(param);
  switch (error) {
    case simdjson::NO_SUCH_FIELD:
      return InvalidRequest(param, absl::StrCat("Missing required field: ", field, "."));
    case simdjson::INCORRECT_TYPE:
    case simdjson::NUMBER_ERROR:
    case simdjson::NUMBER_OUT_OF_RANGE:
      return InvalidRequest(param, absl::StrCat(field, " has the wrong type."));
    case simdjson::STRING_ERROR:
      return InvalidRequest(
          param, absl::StrCat(field, " is not valid Unicode text (lone surrogate or bad escape)."));
    case simdjson::UTF8_ERROR:
      return InvalidRequest(param, "The request body is not valid UTF-8.");
    default:
      return InvalidRequest(
          param, absl::StrCat("The request body is not valid JSON (", simdjson::error_message(error),
                              field.empty() ? "" : ", at ", field, ")."));
  }
}

std::optional<ApiError> WalkMessages(json::value value, CanonicalPrompt& canonical,
                                     std::vector<ChatMessage>* messages_out) {
  return MessageWalker(canonical, messages_out).Walk(value);
}

std::optional<ApiError> WalkSystem(json::value value, CanonicalPrompt& canonical) {
  return MessageWalker(canonical, nullptr).WalkSystem(value);
}

std::optional<ApiError> WalkTools(json::value value, CanonicalPrompt& canonical, std::string* raw_out) {
  std::string_view raw;
  if (auto error = RawJson(value, raw)) return JsonError(error, "tools");
  if (raw == "null") return std::nullopt;
  canonical.AddTools(raw);
  if (raw_out != nullptr) *raw_out = raw;
  return CheckOpaque(raw, "tools");
}

simdjson::error_code OpenDocument(std::string& body, json::document& document) {
  thread_local json::parser parser;
  if (body.capacity() < body.size() + simdjson::SIMDJSON_PADDING)
    body.reserve(body.size() + simdjson::SIMDJSON_PADDING);
  return parser.iterate(simdjson::padded_string_view(body.data(), body.size(), body.capacity()))
      .get(document);
}

}  // namespace kvring::openai
