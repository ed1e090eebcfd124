#include "common/openai/answer_text.h"

#include "common/openai/json_fields.h"

namespace kvring::openai {
namespace {

// Null is no text and no fault.
bool AppendString(json::value value, std::string& out) {
  bool null = false;
  if (value.is_null().get(null) == simdjson::SUCCESS && null) return true;
  std::string_view text;
  if (value.get_string().get(text)) return false;
  out.append(text);
  return true;
}

bool AppendMessage(json::value value, std::string& out) {
  json::object object;
  if (value.get_object().get(object)) return false;
  for (auto entry : object) {
    json::field field;
    std::string_view key;
    if (std::move(entry).get(field) || field.unescaped_key().get(key)) return false;
    if (key == "content" && !AppendString(field.value(), out)) return false;
    bool null = false;
    if (key == "tool_calls" && !(field.value().is_null().get(null) == simdjson::SUCCESS && null))
      return false;
  }
  return true;
}

bool AppendChoice(json::object choice, std::string& out) {
  int64_t index = 0;
  const size_t before = out.size();
  for (auto entry : choice) {
    json::field field;
    std::string_view key;
    if (std::move(entry).get(field) || field.unescaped_key().get(key)) return false;
    if (key == "index" && field.value().get_int64().get(index)) return false;
    if ((key == "delta" || key == "message") && !AppendMessage(field.value(), out)) return false;
    if (key == "text" && !AppendString(field.value(), out)) return false;
  }
  if (index != 0) out.resize(before);
  return true;
}

}  // namespace

bool AppendAnswerText(std::string& json, std::string& out) {
  json::document document;
  json::array choices;
  if (OpenDocument(json, document)) return false;
  const auto found = document["choices"].get_array().get(choices);
  if (found == simdjson::NO_SUCH_FIELD) return true;  // usage alone
  if (found) return false;
  for (auto element : choices) {
    json::object choice;
    if (element.get_object().get(choice) || !AppendChoice(choice, out)) return false;
  }
  return true;
}

}  // namespace kvring::openai
