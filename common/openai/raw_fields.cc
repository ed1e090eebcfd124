#include "common/openai/raw_fields.h"

#include "absl/strings/str_cat.h"
#include "common/openai/json_fields.h"

namespace kvring::openai {
namespace {

simdjson::error_code Walk(std::string& text, std::vector<std::pair<std::string, std::string_view>>& fields) {
  json::document document;
  json::object object;
  if (auto error = OpenDocument(text, document)) return error;
  if (auto error = document.get_object().get(object)) return error;
  for (auto entry : object) {
    json::field field;
    std::string_view key;
    std::string_view raw;
    if (auto error = std::move(entry).get(field)) return error;
    if (auto error = field.unescaped_key().get(key)) return error;
    std::string name(key);
    if (auto error = RawJson(field.value(), raw)) return error;
    fields.emplace_back(std::move(name), raw);
  }
  const char* rest = nullptr;
  return document.current_location().get(rest) ? simdjson::SUCCESS : simdjson::TAPE_ERROR;
}

}  // namespace

absl::StatusOr<RawFields> RawFields::Read(std::string_view json) {
  RawFields out;
  out.text_ = std::make_unique<std::string>(json);
  if (const auto error = Walk(*out.text_, out.fields_))
    return absl::InvalidArgumentError(
        absl::StrCat("not a JSON object (", simdjson::error_message(error), ")"));
  return out;
}

std::string_view RawFields::Raw(std::string_view name) const {
  for (const auto& [key, value] : fields_)
    if (key == name) return value == "null" ? std::string_view() : value;
  return {};
}

std::string_view RawFields::FirstOf(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names)
    if (const std::string_view raw = Raw(name); !raw.empty()) return raw;
  return {};
}

}  // namespace kvring::openai
