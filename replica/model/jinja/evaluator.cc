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
