// String methods and the filters that share their work.
#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "replica/model/jinja/evaluator.h"

namespace kvring::replica::jinja {
namespace {

constexpr std::string_view kWhite = " \t\n\r\f\v";

std::string MapBytes(std::string_view in, int (*map)(int)) {
  std::string out(in);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x80) c = static_cast<char>(map(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string Title(std::string_view in) {
  std::string out(in);
  bool word_start = true;
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) c = static_cast<char>(word_start ? std::toupper(byte) : std::tolower(byte));
    word_start = byte < 0x80 && !std::isalpha(byte);
  }
  return out;
}

std::string Capitalize(std::string_view in) {
  std::string out = MapBytes(in, std::tolower);
  if (!out.empty() && static_cast<unsigned char>(out[0]) < 0x80)
    out[0] = static_cast<char>(std::toupper(out[0]));
  return out;
}

std::string_view StringArgument(Evaluator& evaluator, const Arguments& arguments, size_t index,
                                std::string_view name) {
  const Value* value = arguments.Get(index, name);
  if (value == nullptr || value->Is<None>()) return {};
  if (!value->Is<Text>()) {
    evaluator.Fail(absl::StrCat("argument ", index + 1, " must be a string"));
    return {};
  }
  return value->bytes();
}

Value Split(Evaluator& evaluator, const Text& self, std::string_view separator, int64_t most) {
  List parts;
  if (!evaluator.SpendSearch(self.bytes(), separator)) return {};
  const std::string& bytes = self.bytes();
  size_t at = separator.empty() ? std::min(bytes.find_first_not_of(kWhite), bytes.size()) : 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t end = separator.empty() ? bytes.find_first_of(kWhite, at) : bytes.find(separator, at);
    if (end == std::string::npos) break;
    parts.push_back(Value(self.Slice(at, end)));
    at = separator.empty() ? std::min(bytes.find_first_not_of(kWhite, end), bytes.size())
                           : end + separator.size();
    if (!evaluator.Spend(1)) return {};
  }
  if (!separator.empty() || at < bytes.size()) parts.push_back(Value(self.Slice(at, bytes.size())));
  return Value::OfList(std::move(parts));
}

Value Replace(Evaluator& evaluator, const Text& self, const Arguments& arguments) {
  const std::string_view from = StringArgument(evaluator, arguments, 0, "old");
  const Value* to_value = arguments.Get(1, "new");
  const std::string_view to = StringArgument(evaluator, arguments, 1, "new");
  if (from.empty() || to_value == nullptr) return Value(self);
  if (!evaluator.SpendSearch(self.bytes(), from)) return {};
  std::string out;
  size_t at = 0;
  bool changed = false;
  for (size_t found; (found = self.bytes().find(from, at)) != std::string::npos; at = found + from.size()) {
    out.append(self.bytes(), at, found - at);
    out.append(to);
    changed = true;
    if (!evaluator.Spend(1) || out.size() > evaluator.limits().max_bytes) break;
  }
  if (!changed) return Value(self);
  out.append(self.bytes(), at);
  if (self.trusted() && to_value->As<Text>().trusted()) return evaluator.Checked(Text(std::move(out)));
  return evaluator.Checked(
      Text::DerivedFromUser(std::move(out), std::max(self.OriginEnd(), to_value->As<Text>().OriginEnd())));
}

bool HasAffix(const Value* affix, const std::string& bytes, bool prefix) {
  if (affix == nullptr) return false;
  if (affix->IsList()) {
    return std::any_of(affix->list().begin(), affix->list().end(),
                       [&](const Value& v) { return HasAffix(&v, bytes, prefix); });
  }
  return affix->Is<Text>() && (prefix ? bytes.starts_with(affix->bytes()) : bytes.ends_with(affix->bytes()));
}

Value TextMethod(Evaluator& evaluator, const Text& self, std::string_view name, const Arguments& arguments) {
  if (name == "strip") return Value(Strip(self, 3, StringArgument(evaluator, arguments, 0, "chars")));
  if (name == "lstrip") return Value(Strip(self, 1, StringArgument(evaluator, arguments, 0, "chars")));
  if (name == "rstrip") return Value(Strip(self, 2, StringArgument(evaluator, arguments, 0, "chars")));
  if (name == "startswith") return Value(HasAffix(arguments.Get(0, "prefix"), self.bytes(), true));
  if (name == "endswith") return Value(HasAffix(arguments.Get(0, "suffix"), self.bytes(), false));
  if (name == "upper") return Value(self.Derive(MapBytes(self.bytes(), std::toupper)));
  if (name == "lower") return Value(self.Derive(MapBytes(self.bytes(), std::tolower)));
  if (name == "title") return Value(self.Derive(Title(self.bytes())));
  if (name == "capitalize") return Value(self.Derive(Capitalize(self.bytes())));
  if (name == "replace") return Replace(evaluator, self, arguments);
  if (name == "find") {
    const std::string_view sub = StringArgument(evaluator, arguments, 0, "sub");
    if (!evaluator.SpendSearch(self.bytes(), sub)) return {};
    const size_t at = self.bytes().find(sub);
    return Value(at == std::string::npos ? int64_t{-1} : static_cast<int64_t>(at));
  }
  const Value* most = arguments.Get(1, "maxsplit");
  return Split(evaluator, self, StringArgument(evaluator, arguments, 0, "sep"),
               most != nullptr && most->Is<int64_t>() ? most->As<int64_t>() : -1);
}

Value DictMethod(Evaluator& evaluator, const Value& value, std::string_view name,
                 const Arguments& arguments) {
  const Dict& self = value.dict();
  if (name == "get" ? !evaluator.Spend(static_cast<int64_t>(self.size() / 16))
                    : !evaluator.SpendCopy(value)) {
    return {};
  }
  if (name == "get") {
    const Value* key = arguments.Get(0, "key");
    const Value* found = key != nullptr && key->Is<Text>() ? FindKey(self, key->bytes()) : nullptr;
    if (found != nullptr) return *found;
    const Value* fallback = arguments.Get(1, "default");
    return fallback == nullptr ? Value(None{}) : *fallback;
  }
  List out;
  for (const auto& [key, value] : self) {
    if (name == "keys") {
      out.push_back(Value::String(key));
    } else if (name == "values") {
      out.push_back(value);
    } else {
      out.push_back(Value::OfList({Value::String(key), value}));
    }
  }
  return Value::OfList(std::move(out));
}

}  // namespace

Text Strip(const Text& text, int sides, std::string_view characters) {
  if (characters.empty()) characters = kWhite;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  while ((sides & 1) != 0 && begin < end && characters.find(bytes[begin]) != std::string_view::npos) ++begin;
  while ((sides & 2) != 0 && begin < end && characters.find(bytes[end - 1]) != std::string_view::npos) --end;
  return text.Slice(begin, end);
}

bool IsMethod(const Value& self, std::string_view name) {
  static constexpr std::string_view kText[] = {"strip",      "lstrip",  "rstrip", "startswith",
                                               "endswith",   "upper",   "lower",  "title",
                                               "capitalize", "replace", "find",   "split"};
  static constexpr std::string_view kDict[] = {"get", "keys", "values", "items"};
  if (self.Is<Text>()) return std::find(std::begin(kText), std::end(kText), name) != std::end(kText);
  return self.IsDict() && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

Value CallMethod(Evaluator& evaluator, const Value& self, std::string_view name, const Arguments& arguments) {
  return self.Is<Text>() ? TextMethod(evaluator, self.As<Text>(), name, arguments)
                         : DictMethod(evaluator, self, name, arguments);
}

}  // namespace kvring::replica::jinja
