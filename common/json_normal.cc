#include "common/json_normal.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "common/json_text.h"

namespace kvring {
namespace {

namespace dom = simdjson::dom;

void AppendNormal(std::string& out, dom::element value);

void AppendObject(std::string& out, dom::object object) {
  std::vector<std::pair<std::string_view, dom::element>> fields;
  for (const auto field : object) fields.emplace_back(field.key, field.value);
  std::ranges::stable_sort(fields, {}, [](const auto& field) { return field.first; });
  out += '{';
  for (const auto& [key, value] : fields) {
    AppendJsonString(out, key);
    out += ':';
    AppendNormal(out, value);
    out += ',';
  }
  out += '}';
}

void AppendArray(std::string& out, dom::array array) {
  out += '[';
  for (const dom::element element : array) {
    AppendNormal(out, element);
    out += ',';
  }
  out += ']';
}

void AppendNormal(std::string& out, dom::element value) {
  if (value.is_object()) return AppendObject(out, value.get_object().value_unsafe());
  if (value.is_array()) return AppendArray(out, value.get_array().value_unsafe());
  if (value.is_string()) return AppendJsonString(out, value.get_string().value_unsafe());
  out += simdjson::minify(value);
}

std::optional<dom::element> Parse(dom::parser& parser, std::string_view json) {
  dom::element value;
  if (parser.parse(json.data(), json.size()).get(value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> NormalJson(std::string_view json) {
  dom::parser parser;
  const auto value = Parse(parser, json);
  if (!value) return std::nullopt;
  std::string out;
  AppendNormal(out, *value);
  return out;
}

std::optional<std::vector<std::string>> NormalJsonElements(std::string_view json) {
  dom::parser parser;
  const auto value = Parse(parser, json);
  dom::array array;
  if (!value || value->get_array().get(array)) return std::nullopt;
  std::vector<std::string> elements;
  for (const dom::element element : array) AppendNormal(elements.emplace_back(), element);
  return elements;
}

std::string WithoutJsonSpace(std::string_view json) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!in_string && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) continue;
    out += c;
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\' && i + 1 < json.size()) out += json[++i];
  }
  return out;
}

size_t JsonEnd(std::string_view text, size_t begin) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

}  // namespace kvring
