#include "replica/model/jinja/evaluator.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "replica/model/jinja/parser.h"

namespace kvring::replica::jinja {
namespace {

constexpr int kMaxNesting = 64;

}  // namespace

const Value* Arguments::Get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  return FindKey(named, name);
}

Evaluator::Evaluator(const Dict& variables, int64_t unix_seconds, const RenderLimits& limits)
    : limits_(limits), unix_seconds_(unix_seconds) {
  scopes_.emplace_back();
  for (const auto& [name, value] : variables) scopes_.back().insert_or_assign(name, value);
}

Evaluator::~Evaluator() {
  for (const auto& fields : namespaces_) fields->clear();
}

Value Evaluator::NewNamespace(Dict fields) {
  namespaces_.push_back(std::make_shared<Dict>(std::move(fields)));
  return Value(Namespace{namespaces_.back()});
}

bool Evaluator::SpendSearch(std::string_view text, std::string_view needle) {
  constexpr size_t kComparedPerStep = 4096;
  return Spend(static_cast<int64_t>(1 + text.size() / kComparedPerStep * (1 + needle.size())));
}

bool Evaluator::Same(const Value& a, const Value& b) {
  return Spend(1 + std::min(a.Weight(), b.Weight()) / kBytesPerStep) && a.Equals(b);
}

void Evaluator::Fail(std::string_view what, absl::StatusCode code) {
  if (!failed())
    status_ = absl::Status(code, absl::StrCat("chat template, line ", line_, ": ", std::string(what)));
}

bool Evaluator::Spend(int64_t n) {
  steps_ += n;
  if (steps_ > limits_.max_steps) Fail("too many steps", absl::StatusCode::kResourceExhausted);
  return !failed();
}

Value Evaluator::Checked(Text text) {
  Spend(static_cast<int64_t>(text.bytes().size() / 64));
  if (text.bytes().size() <= limits_.max_bytes) return Value(std::move(text));
  Fail("a string is too long", absl::StatusCode::kResourceExhausted);
  return {};
}

void Evaluator::Emit(const Text& text, Text& out) {
  if (out.bytes().size() + text.bytes().size() > limits_.max_bytes) {
    Fail("the output is too long", absl::StatusCode::kResourceExhausted);
    return;
  }
  out.Append(text);
}

void Evaluator::Run(const Body& body, Text& out) { RunBody(body, out); }

Evaluator::Flow Evaluator::RunBody(const Body& body, Text& out) {
  for (const auto& statement : body) {
    line_ = statement->line;
    if (!Spend(1)) return Flow::kNormal;
    if (const Flow flow = RunStatement(*statement, out); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::RunStatement(const Statement& statement, Text& out) {
  switch (statement.kind) {
    case Statement::kText:
      Emit(Text(statement.text), out);
      return Flow::kNormal;
    case Statement::kOutput:
      Emit(ToText(Evaluate(*statement.expr)), out);
      return Flow::kNormal;
    case Statement::kIf:
      return RunIf(statement, out);
    case Statement::kFor:
      RunFor(statement, out);
      return Flow::kNormal;
    case Statement::kSet:
      RunSet(statement);
      return Flow::kNormal;
    case Statement::kSetBlock: {
      Text captured;
      RunBody(statement.body, captured);
      Assign(statement.targets, Value(std::move(captured)));
      return Flow::kNormal;
    }
    case Statement::kMacro:
      scopes_.back().insert_or_assign(statement.macro->name, Value(Macro{statement.macro.get()}));
      return Flow::kNormal;
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::RunIf(const Statement& statement, Text& out) {
  for (const auto& [condition, body] : statement.branches) {
    if (condition == nullptr || Evaluate(*condition).Truthy())
      return failed() ? Flow::kNormal : RunBody(body, out);
  }
  return Flow::kNormal;
}

bool Evaluator::ItemsOf(const Value& value, List& items) {
  const bool walked = value.IsList() || value.IsDict() || value.Is<Text>();
  // A character of a string becomes a value of its own.
  if (walked && !Spend(value.Is<Text>() ? value.Weight() : 1 + value.Weight() / kBytesPerStep)) return false;
  if (value.IsList()) {
    items = value.list();
  } else if (value.IsDict()) {
    for (const auto& [key, entry] : value.dict()) items.push_back(Value::String(key));
  } else if (value.Is<Text>()) {
    const Text& text = value.As<Text>();
    for (size_t i = 0; i < text.bytes().size(); ++i) items.push_back(Value(text.Slice(i, i + 1)));
  } else if (!value.Is<Undefined>()) {
    Fail(absl::StrCat("a ", std::string(value.TypeName()), " cannot be walked"));
  }
  return !failed();
}

void Evaluator::RunFor(const Statement& statement, Text& out) {
  List all;
  if (!ItemsOf(Evaluate(*statement.expr), all)) return;
  scopes_.emplace_back();
  List items;
  for (Value& item : all) {
    if (statement.filter != nullptr) {
      Assign(statement.targets, item);
      if (!Evaluate(*statement.filter).Truthy()) continue;
    }
    items.push_back(std::move(item));
  }
  const auto n = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < n && !failed(); ++i) {
    scopes_.back().clear();
    Assign(statement.targets, items[i]);
    Dict loop = {{"index", Value(i + 1)},        {"index0", Value(i)}, {"first", Value(i == 0)},
                 {"last", Value(i + 1 == n)},    {"length", Value(n)}, {"revindex", Value(n - i)},
                 {"revindex0", Value(n - i - 1)}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < n) loop.emplace_back("nextitem", items[i + 1]);
    scopes_.back().insert_or_assign("loop", Value::OfDict(std::move(loop)));
    if (RunBody(statement.body, out) == Flow::kBreak) break;
  }
  scopes_.pop_back();
  if (n == 0 && !failed()) RunBody(statement.otherwise, out);
}

void Evaluator::RunSet(const Statement& statement) {
  Value value = Evaluate(*statement.expr);
  if (statement.text.empty()) {
    Assign(statement.targets, value);
  } else {
    AssignField(statement.targets[0], statement.text, std::move(value));
  }
}

void Evaluator::Assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    scopes_.back().insert_or_assign(targets[0], value);
    return;
  }
  if (!value.IsList() || value.list().size() != targets.size()) {
    Fail(absl::StrCat("cannot unpack a ", std::string(value.TypeName()), " into ", targets.size(), " names"));
    return;
  }
  for (size_t i = 0; i < targets.size(); ++i) scopes_.back().insert_or_assign(targets[i], value.list()[i]);
}

void Evaluator::AssignField(const std::string& name, const std::string& field, Value value) {
  const Value target = Lookup(name);
  if (!target.Is<Namespace>()) return Fail(absl::StrCat("'", name, "' is not a namespace"));
  Dict& fields = *target.As<Namespace>().fields;
  for (auto& [key, old] : fields) {
    if (key == field) {
      old = std::move(value);
      return;
    }
  }
  fields.emplace_back(field, std::move(value));
}

Value Evaluator::Lookup(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto it = scope->find(name);
    if (it != scope->end()) return it->second;
  }
  return IsFunction(name) ? Value(Function{name, nullptr}) : Value();
}

// Strings are copied with their values, lists and dicts are not.
Value Evaluator::Evaluate(const Expr& expr) {
  line_ = expr.line;
  if (!Spend(1)) return {};
  Value value = EvaluateNode(expr);
  if (value.Is<Text>()) Spend(value.Weight() / kBytesPerStep);
  const bool fits =
      value.Depth() <= kMaxNesting && value.Weight() <= 2 * static_cast<int64_t>(limits_.max_bytes);
  if (!fits) Fail("a value is too large or nests too deeply", absl::StatusCode::kResourceExhausted);
  return failed() ? Value() : std::move(value);
}

Value Evaluator::EvaluateNode(const Expr& expr) {
  switch (expr.kind) {
    case Expr::kLiteral:
      return expr.value;
    case Expr::kName:
      return Lookup(expr.name);
    case Expr::kList: {
      List list;
      for (const ExprPtr& element : expr.args) list.push_back(Evaluate(*element));
      return Value::OfList(std::move(list));
    }
    case Expr::kDict: {
      Dict dict;
      for (const auto& [key, value] : expr.named) dict.emplace_back(key, Evaluate(*value));
      return Value::OfDict(std::move(dict));
    }
    case Expr::kAttribute:
      return Attribute(Evaluate(*expr.args[0]), expr.name);
    case Expr::kIndex: {
      const Value base = Evaluate(*expr.args[0]);
      return Index(base, Evaluate(*expr.args[1]));
    }
    case Expr::kSlice:
      return Slice(expr);
    case Expr::kCall:
      return Call(expr);
    case Expr::kFilter: {
      const Value input = Evaluate(*expr.args[0]);
      const Arguments arguments = EvaluateArguments(expr);
      return failed() ? Value() : ApplyFilter(*this, expr.name, input, arguments);
    }
    case Expr::kTest: {
      const Value input = Evaluate(*expr.args[0]);
      const Arguments arguments = EvaluateArguments(expr);
      return failed() ? Value()
                      : Value(ApplyTest(*this, expr.name, input, arguments) != expr.value.As<bool>());
    }
    case Expr::kUnary:
      return Unary(expr);
    case Expr::kBinary:
      return Binary(expr);
    case Expr::kConditional:
      if (Evaluate(*expr.args[1]).Truthy()) return Evaluate(*expr.args[0]);
      return expr.args[2] == nullptr ? Value() : Evaluate(*expr.args[2]);
  }
  return {};
}

Arguments Evaluator::EvaluateArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) arguments.positional.push_back(Evaluate(*expr.args[i]));
  for (const auto& [name, value] : expr.named) arguments.named.emplace_back(name, Evaluate(*value));
  return arguments;
}

Value Evaluator::Attribute(const Value& base, const std::string& name) {
  if (base.IsDict()) {
    if (!Spend(static_cast<int64_t>(base.dict().size() / 16))) return {};
    if (const Value* value = FindKey(base.dict(), name)) return *value;
  } else if (base.Is<Namespace>()) {
    const Value* value = FindKey(*base.As<Namespace>().fields, name);
    return value == nullptr ? Value() : *value;
  }
  if (IsMethod(base, name)) return Value(Function{name, std::make_shared<Value>(base)});
  if (base.Is<Undefined>()) Fail(absl::StrCat("'", name, "' of something undefined"));
  return {};
}

Value Evaluator::Index(const Value& base, const Value& key) {
  if (key.Is<Text>()) return Attribute(base, key.bytes());
  if (!key.Is<int64_t>() || !(base.IsList() || base.Is<Text>())) {
    Fail(
        absl::StrCat("a ", std::string(base.TypeName()), " has no element by ", std::string(key.TypeName())));
    return {};
  }
  const auto size = static_cast<int64_t>(base.IsList() ? base.list().size() : base.bytes().size());
  int64_t i = key.As<int64_t>();
  if (i < 0) i += size;
  if (i < 0 || i >= size) return {};
  return base.IsList() ? base.list()[i] : Value(base.As<Text>().Slice(i, i + 1));
}

// Python's slice rules; strings are sliced by byte only with step 1.
Value Evaluator::Slice(const Expr& expr) {
  const Value base = Evaluate(*expr.args[0]);
  if (!base.IsList() && !base.Is<Text>()) {
    Fail(absl::StrCat("a ", std::string(base.TypeName()), " cannot be sliced"));
    return {};
  }
  const auto size = static_cast<int64_t>(base.IsList() ? base.list().size() : base.bytes().size());
  auto bound = [&](size_t arg, int64_t absent) {
    if (expr.args[arg] == nullptr) return absent;
    const Value value = Evaluate(*expr.args[arg]);
    if (value.Is<int64_t>()) return value.As<int64_t>();
    if (!value.Is<None>()) Fail("slice bounds are integers");
    return absent;
  };
  // A longer step is as good as one past the end.
  const int64_t step = std::clamp(bound(3, 1), -size - 1, size + 1);
  if (step == 0) Fail("a slice's step is not 0");
  if (failed()) return {};
  auto place = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + size : i, step > 0 ? 0 : -1, step > 0 ? size : size - 1);
  };
  const int64_t begin = expr.args[1] == nullptr ? (step > 0 ? 0 : size - 1) : place(bound(1, 0));
  const int64_t end = expr.args[2] == nullptr ? (step > 0 ? size : -1) : place(bound(2, size));
  if (base.Is<Text>() && step == 1) return Value(base.As<Text>().Slice(begin, std::max(begin, end)));
  if (base.Is<Text>()) {
    std::string picked;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
      picked += base.bytes()[static_cast<size_t>(i)];
    return Value(base.As<Text>().Derive(std::move(picked)));
  }
  List picked;
  if (!SpendCopy(base)) return {};
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) picked.push_back(base.list()[i]);
  return Value::OfList(std::move(picked));
}

Value Evaluator::Unary(const Expr& expr) {
  const Value operand = Evaluate(*expr.args[0]);
  if (expr.name == "not") return Value(!operand.Truthy());
  if (operand.Is<double>()) return Value(expr.name == "-" ? -operand.As<double>() : operand.As<double>());
  if (operand.Is<int64_t>()) return Value(expr.name == "-" ? -operand.As<int64_t>() : operand.As<int64_t>());
  Fail(absl::StrCat("'", expr.name, "' needs a number"));
  return {};
}

bool Evaluator::Contains(const Value& container, const Value& item) {
  if (container.Is<Text>()) {
    return item.Is<Text>() && SpendSearch(container.bytes(), item.bytes()) &&
           container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.IsDict()) return item.Is<Text>() && FindKey(container.dict(), item.bytes()) != nullptr;
  if (container.IsList()) {
    if (!Spend(static_cast<int64_t>(container.list().size()))) return false;
    return std::any_of(container.list().begin(), container.list().end(),
                       [&](const Value& v) { return Same(v, item); });
  }
  Fail(absl::StrCat("'in' needs a container, not a ", std::string(container.TypeName())));
  return false;
}

Value Evaluator::Binary(const Expr& expr) {
  const std::string& op = expr.name;
  const Value left = Evaluate(*expr.args[0]);
  if (op == "and") return left.Truthy() ? Evaluate(*expr.args[1]) : left;
  if (op == "or") return left.Truthy() ? left : Evaluate(*expr.args[1]);
  const Value right = Evaluate(*expr.args[1]);
  if (failed()) return {};
  if (op == "==") return Value(Same(left, right));
  if (op == "!=") return Value(!Same(left, right));
  if (op == "in") return Value(Contains(right, left));
  if (op == "not in") return Value(!Contains(right, left));
  if (op == "~" || (op == "+" && left.Is<Text>() && right.Is<Text>())) {
    Text joined = ToText(left);
    joined.Append(ToText(right));
    return Checked(std::move(joined));
  }
  if (op == "+" && left.IsList() && right.IsList()) {
    if (!SpendCopy(left) || !SpendCopy(right)) return {};
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return Value::OfList(std::move(joined));
  }
  return Arithmetic(op, left, right);
}

Value Evaluator::Arithmetic(const std::string& op, const Value& left, const Value& right) {
  const bool compares = op == "<" || op == ">" || op == "<=" || op == ">=";
  if (compares && left.Is<Text>() && right.Is<Text>()) {
    const int order = left.bytes().compare(right.bytes());
    return Value(op == "<" ? order < 0 : op == ">" ? order > 0 : op == "<=" ? order <= 0 : order >= 0);
  }
  if (!left.IsNumber() || !right.IsNumber()) {
    Fail(absl::StrCat("'", op, "' does not take a ", std::string(left.TypeName()), " and a ",
                      std::string(right.TypeName())));
    return {};
  }
  const double a = left.AsDouble();
  const double b = right.AsDouble();
  if (compares) return Value(op == "<" ? a < b : op == ">" ? a > b : op == "<=" ? a <= b : a >= b);
  if ((op == "/" || op == "//" || op == "%") && b == 0) {
    Fail("division by zero");
    return {};
  }
  double result = op == "+"    ? a + b
                  : op == "-"  ? a - b
                  : op == "*"  ? a * b
                  : op == "/"  ? a / b
                  : op == "//" ? std::floor(a / b)
                  : op == "%"  ? a - b * std::floor(a / b)
                               : std::pow(a, b);
  const bool whole = op != "/" && !left.Is<double>() && !right.Is<double>() && std::abs(result) < 0x1p53;
  return whole && result == std::floor(result) ? Value(static_cast<int64_t>(result)) : Value(result);
}

Value Evaluator::Call(const Expr& expr) {
  const Value callee = Evaluate(*expr.args[0]);
  const Arguments arguments = EvaluateArguments(expr);
  if (failed()) return {};
  if (callee.Is<Macro>()) return CallMacro(*callee.As<Macro>().node, arguments);
  if (callee.Is<Function>()) {
    const Function& function = callee.As<Function>();
    return function.self == nullptr ? CallFunction(*this, function.name, arguments)
                                    : CallMethod(*this, *function.self, function.name, arguments);
  }
  Fail(absl::StrCat("a ", std::string(callee.TypeName()), " cannot be called"));
  return {};
}

Value Evaluator::CallMacro(const MacroNode& macro, const Arguments& arguments) {
  if (depth_ >= limits_.max_depth) {
    Fail("macros call each other too deeply", absl::StatusCode::kResourceExhausted);
    return {};
  }
  Scope scope;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const Value* given = arguments.Get(i, name);
    scope.insert_or_assign(name, given != nullptr      ? *given
                                 : fallback != nullptr ? Evaluate(*fallback)
                                                       : Value());
  }
  ++depth_;
  scopes_.push_back(std::move(scope));
  Text out;
  RunBody(macro.body, out);
  scopes_.pop_back();
  --depth_;
  return Checked(std::move(out));
}

absl::StatusOr<Template> Template::Parse(std::string_view source) {
  auto body = jinja::Parse(source);
  if (!body.ok()) return body.status();
  return Template(std::move(*body));
}

absl::StatusOr<Text> Template::Render(const Dict& variables, int64_t unix_seconds,
                                      const RenderLimits& limits) const {
  Evaluator evaluator(variables, unix_seconds, limits);
  Text out;
  evaluator.Run(body_, out);
  if (evaluator.failed()) return evaluator.status();
  return out;
}

}  // namespace kvring::replica::jinja
