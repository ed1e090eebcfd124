// Filters, tests and functions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "replica/model/jinja/evaluator.h"

namespace kvring::replica::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

int64_t LengthOf(Evaluator& evaluator, const Value& value) {
  if (value.IsList()) return static_cast<int64_t>(value.list().size());
  if (value.IsDict()) return static_cast<int64_t>(value.dict().size());
  if (value.Is<Undefined>()) return 0;
  if (!value.Is<Text>()) {
    evaluator.Fail(absl::StrCat("a ", std::string(value.TypeName()), " has no length"));
    return 0;
  }
  const std::string& bytes = value.bytes();  // length in characters
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Value Join(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Value* separator = arguments.Get(0, "d");
  Text out;
  if (!input.IsList()) return Value(ToText(input));
  for (size_t i = 0; i < input.list().size(); ++i) {
    if (i > 0 && separator != nullptr) out.Append(ToText(*separator));
    out.Append(ToText(input.list()[i]));
    if (!evaluator.Spend(1) || out.bytes().size() > evaluator.limits().max_bytes) break;
  }
  return evaluator.Checked(std::move(out));
}

Value ToInt(const Value& input) {
  if (input.IsNumber()) {
    const double number = input.AsDouble();  // what no integer holds is 0
    return Value(std::abs(number) < 0x1p62 ? static_cast<int64_t>(number) : int64_t{0});
  }
  int64_t value = 0;
  if (input.Is<Text>())
    std::from_chars(input.bytes().data(), input.bytes().data() + input.bytes().size(), value);
  return Value(value);
}

Value AttributeOf(const Value& item, const std::string& name) {
  const Value* found = item.IsDict() ? FindKey(item.dict(), name) : nullptr;
  return found == nullptr ? Value() : *found;
}

// selectattr(name[, test[, argument]]) and rejectattr; without a test the attribute's truth counts.
Value SelectAttr(Evaluator& evaluator, const Value& input, const Arguments& arguments, bool keep) {
  const Value* name = arguments.Get(0, "attribute");
  const Value* test = arguments.Get(1, "test");
  if (!input.IsList() || name == nullptr || !name->Is<Text>()) {
    evaluator.Fail("selectattr needs a list and a name");
    return {};
  }
  Arguments rest;
  if (arguments.positional.size() > 2)
    rest.positional.assign(arguments.positional.begin() + 2, arguments.positional.end());
  List out;
  if (!evaluator.SpendCopy(input)) return {};
  for (const Value& item : input.list()) {
    const Value attribute = AttributeOf(item, name->bytes());
    const bool holds =
        test == nullptr ? attribute.Truthy() : ApplyTest(evaluator, ToText(*test).bytes(), attribute, rest);
    if (holds == keep) out.push_back(item);
    if (!evaluator.Spend(1)) break;
  }
  return Value::OfList(std::move(out));
}

// map(attribute='x') or map('filter').
Value Map(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  List out;
  if (!input.IsList()) evaluator.Fail("map needs a list");
  if (evaluator.failed()) return {};
  const Value* attribute = FindKey(arguments.named, "attribute");
  for (const Value& item : input.list()) {
    if (attribute != nullptr) {
      out.push_back(AttributeOf(item, ToText(*attribute).bytes()));
    } else if (!arguments.positional.empty()) {
      Arguments rest;
      rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
      out.push_back(ApplyFilter(evaluator, ToText(arguments.positional[0]).bytes(), item, rest));
    }
    if (!evaluator.Spend(1)) break;
  }
  return Value::OfList(std::move(out));
}

Value Unique(Evaluator& evaluator, const Value& input) {
  List out;
  for (const Value& item : input.list()) {
    if (std::none_of(out.begin(), out.end(), [&](const Value& seen) { return evaluator.Same(seen, item); }))
      out.push_back(item);
  }
  return Value::OfList(std::move(out));
}

Value Indent(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
  const Value* width = arguments.Get(0, "width");
  const std::string pad(static_cast<size_t>(std::clamp<int64_t>(
                            width != nullptr && width->Is<int64_t>() ? width->As<int64_t>() : 4, 0, 64)),
                        ' ');
  const Text text = ToText(input);
  Text out;
  size_t at = 0;
  for (size_t end; (end = text.bytes().find('\n', at)) != std::string::npos; at = end + 1) {
    out.Append(text.Slice(at, end + 1));
    if (end + 1 < text.bytes().size() && text.bytes()[end + 1] != '\n') out.Append(Text(pad));
    if (!evaluator.Spend(1)) return {};
  }
  out.Append(text.Slice(at, text.bytes().size()));
  return evaluator.Checked(std::move(out));
}

Value ListFilter(Evaluator& evaluator, std::string_view name, const Value& input,
                 const Arguments& arguments) {
  if (name == "selectattr") return SelectAttr(evaluator, input, arguments, true);
  if (name == "rejectattr") return SelectAttr(evaluator, input, arguments, false);
  if (name == "map") return Map(evaluator, input, arguments);
  if (name == "join") return Join(evaluator, input, arguments);
  if (!input.IsList()) {
    evaluator.Fail(absl::StrCat("filter '", std::string(name), "' needs a list"));
    return {};
  }
  if (name == "first") return input.list().empty() ? Value() : input.list().front();
  if (name == "last") return input.list().empty() ? Value() : input.list().back();
  if (name == "unique") return Unique(evaluator, input);
  if (name == "list") return input;
  if (!evaluator.SpendCopy(input)) return {};
  List reversed(input.list().rbegin(), input.list().rend());
  return Value::OfList(std::move(reversed));
}

Value Range(Evaluator& evaluator, const Arguments& arguments) {
  std::vector<int64_t> bounds;
  for (const Value& value : arguments.positional) {
    if (!value.Is<int64_t>()) evaluator.Fail("range takes integers");
    bounds.push_back(value.Is<int64_t>() ? value.As<int64_t>() : 0);
  }
  if (bounds.empty() || bounds.size() > 3) evaluator.Fail("range takes one to three integers");
  if (evaluator.failed()) return {};
  const int64_t begin = bounds.size() > 1 ? bounds[0] : 0;
  const int64_t end = bounds.size() > 1 ? bounds[1] : bounds[0];
  const int64_t step = bounds.size() > 2 ? bounds[2] : 1;
  List out;
  for (int64_t i = begin; step > 0 ? i < end : step < 0 && i > end;) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      evaluator.Fail("a range is too long", absl::StatusCode::kResourceExhausted);
      return {};
    }
    out.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return evaluator.Spend(static_cast<int64_t>(out.size())) ? Value::OfList(std::move(out)) : Value();
}

Value StrftimeNow(const Evaluator& evaluator, const Arguments& arguments) {
  const Value* format = arguments.Get(0, "format");
  if (format == nullptr || !format->Is<Text>()) return {};
  const std::time_t now = evaluator.unix_seconds();
  std::tm utc{};
  gmtime_r(&now, &utc);
  char out[256];
  const size_t size = std::strftime(out, sizeof(out), format->bytes().c_str(), &utc);
  return Value::String(std::string(out, size));
}

constexpr std::string_view kFunctions[] = {"range", "namespace", "dict", "raise_exception", "strftime_now"};

}  // namespace

bool IsFunction(std::string_view name) {
  return std::find(std::begin(kFunctions), std::end(kFunctions), name) != std::end(kFunctions);
}

Value CallFunction(Evaluator& evaluator, std::string_view name, const Arguments& arguments) {
  if (name == "range") return Range(evaluator, arguments);
  if (name == "namespace") return evaluator.NewNamespace(arguments.named);
  if (name == "dict") return Value::OfDict(arguments.named);
  if (name == "strftime_now") return StrftimeNow(evaluator, arguments);
  const Value* message = arguments.Get(0, "message");
  evaluator.Fail(message == nullptr ? "raise_exception" : ToText(*message).bytes(),
                 absl::StatusCode::kFailedPrecondition);
  return {};
}

Value ApplyFilter(Evaluator& evaluator, std::string_view name, const Value& input,
                  const Arguments& arguments) {
  if (name == "trim") return Value(Strip(ToText(input), 3, ""));
  if (name == "length" || name == "count") return Value(LengthOf(evaluator, input));
  if (name == "tojson") {
    const Value* indent = arguments.Get(0, "indent");
    return evaluator.Checked(ToJson(input,
                                    indent != nullptr && indent->Is<int64_t>()
                                        ? static_cast<int>(std::clamp<int64_t>(indent->As<int64_t>(), 0, 16))
                                        : -1,
                                    evaluator.limits().max_bytes));
  }
  if (name == "default" || name == "d") {
    const Value* fallback = arguments.Get(0, "default_value");
    const Value* falsy = arguments.Get(1, "boolean");
    const bool use = input.Is<Undefined>() || (falsy != nullptr && falsy->Truthy() && !input.Truthy());
    return !use ? input : fallback == nullptr ? Value::String("") : *fallback;
  }
  if (name == "string") return Value(ToText(input));
  if (name == "safe" || name == "e" || name == "escape") return input;
  if (name == "int") return ToInt(input);
  if (name == "float") return Value(input.IsNumber() ? input.AsDouble() : 0.0);
  if (name == "abs" && input.IsNumber())
    return input.Is<double>() ? Value(std::abs(input.As<double>())) : Value(std::abs(input.AsInt()));
  if (name == "indent") return Indent(evaluator, input, arguments);
  if (input.Is<Text>() && IsMethod(input, name)) return CallMethod(evaluator, input, name, arguments);
  if (input.IsDict() && (name == "items" || name == "dictsort"))
    return CallMethod(evaluator, input, "items", arguments);
  if (input.IsDict() && name == "list") return CallMethod(evaluator, input, "keys", arguments);
  static constexpr std::string_view kLists[] = {"selectattr", "rejectattr", "map",  "join",   "first",
                                                "last",       "unique",     "list", "reverse"};
  if (std::find(std::begin(kLists), std::end(kLists), name) != std::end(kLists))
    return ListFilter(evaluator, name, input, arguments);
  evaluator.Fail(
      absl::StrCat("filter '", std::string(name), "' does not exist for a ", std::string(input.TypeName())));
  return {};
}

bool ApplyTest(Evaluator& evaluator, std::string_view name, const Value& input, const Arguments& arguments) {
  const Value* argument = arguments.Get(0, "other");
  if (name == "defined") return !input.Is<Undefined>();
  if (name == "undefined") return input.Is<Undefined>();
  if (name == "none") return input.Is<None>();
  if (name == "string") return input.Is<Text>();
  if (name == "number") return input.IsNumber() && !input.Is<bool>();
  if (name == "integer") return input.Is<int64_t>();
  if (name == "float") return input.Is<double>();
  if (name == "boolean") return input.Is<bool>();
  if (name == "mapping") return input.IsDict();
  if (name == "sequence" || name == "iterable") return input.IsList() || input.Is<Text>() || input.IsDict();
  if (name == "true") return input.Is<bool>() && input.As<bool>();
  if (name == "false") return input.Is<bool>() && !input.As<bool>();
  if (name == "callable") return input.Is<Function>() || input.Is<Macro>();
  if (name == "odd" && input.Is<int64_t>()) return input.As<int64_t>() % 2 != 0;
  if (name == "even" && input.Is<int64_t>()) return input.As<int64_t>() % 2 == 0;
  if (argument != nullptr) {
    if (name == "equalto" || name == "eq" || name == "sameas") return evaluator.Same(input, *argument);
    if (name == "ne") return !evaluator.Same(input, *argument);
    if (name == "divisibleby" && input.Is<int64_t>() && argument->Is<int64_t>() &&
        argument->As<int64_t>() != 0) {
      return input.As<int64_t>() % argument->As<int64_t>() == 0;
    }
    if (name == "in" && argument->IsList()) {
      return std::any_of(argument->list().begin(), argument->list().end(),
                         [&](const Value& v) { return evaluator.Same(v, input); });
    }
  }
  evaluator.Fail(
      absl::StrCat("test '", std::string(name), "' does not exist for a ", std::string(input.TypeName())));
  return false;
}

}  // namespace kvring::replica::jinja
