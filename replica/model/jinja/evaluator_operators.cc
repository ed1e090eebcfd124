// Operators: subscripts, slices, arithmetic, comparison.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "replica/model/jinja/evaluator.h"

namespace kvring::replica::jinja {

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

}  // namespace kvring::replica::jinja
