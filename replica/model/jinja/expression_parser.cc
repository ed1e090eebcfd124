#include "replica/model/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace kvring::replica::jinja {

ExprPtr ExpressionParser::New(Expr::Kind kind, std::string name) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = Peek().line;
  expr->name = std::move(name);
  return expr;
}

ExprPtr ExpressionParser::Binary(std::string op, ExprPtr left, ExprPtr right) const {
  ExprPtr expr = New(Expr::kBinary, std::move(op));
  expr->args.push_back(std::move(left));
  expr->args.push_back(std::move(right));
  return expr;
}

void ExpressionParser::Fail(std::string_view what) {
  if (failed()) return;
  status_ =
      absl::InvalidArgumentError(absl::StrCat("chat template, line ", Peek().line, ": ", std::string(what)));
  at_ = tokens_.size() - 1;  // at the end: every loop stops
}

bool ExpressionParser::TakeOperator(std::string_view op) {
  if (Peek().kind != Token::kOperator || Peek().text != op) return false;
  ++at_;
  return true;
}

bool ExpressionParser::TakeName(std::string_view name) {
  if (Peek().kind != Token::kName || Peek().text != name) return false;
  ++at_;
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!TakeOperator(op)) Fail(absl::StrCat("expected '", std::string(op), "' before '", Peek().text, "'"));
}

std::string ExpressionParser::ExpectIdentifier() {
  if (Peek().kind != Token::kName) Fail("expected a name");
  return Take().text;
}

ExprPtr ExpressionParser::Expression() {
  const Nesting nesting(*this);
  ExprPtr value = failed() ? New(Expr::kLiteral) : Or();
  while (TakeName("if")) {
    ExprPtr expr = New(Expr::kConditional);
    expr->args.push_back(std::move(value));
    expr->args.push_back(Or());
    expr->args.push_back(TakeName("else") ? Expression() : nullptr);
    value = std::move(expr);
  }
  return value;
}

ExprPtr ExpressionParser::Or() {
  ExprPtr left = And();
  while (TakeName("or")) left = Binary("or", std::move(left), And());
  return left;
}

ExprPtr ExpressionParser::And() {
  ExprPtr left = Not();
  while (TakeName("and")) left = Binary("and", std::move(left), Not());
  return left;
}

ExprPtr ExpressionParser::Not() {
  if (!TakeName("not")) return Comparison();
  const Nesting nesting(*this);
  ExprPtr expr = New(Expr::kUnary, "not");
  expr->args.push_back(failed() ? New(Expr::kLiteral) : Not());
  return expr;
}

ExprPtr ExpressionParser::Comparison() {
  ExprPtr left = Concat();
  while (true) {
    std::string op;
    for (std::string_view candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (TakeOperator(candidate)) {
        op = candidate;
        break;
      }
    }
    if (op.empty() && TakeName("in")) op = "in";
    if (op.empty() && Peek().kind == Token::kName && Peek().text == "not" && Peek(1).text == "in") {
      at_ += 2;
      op = "not in";
    }
    if (op.empty()) return left;
    left = Binary(op, std::move(left), Concat());
  }
}

ExprPtr ExpressionParser::Concat() {
  ExprPtr left = Sum();
  while (TakeOperator("~")) left = Binary("~", std::move(left), Sum());
  return left;
}

ExprPtr ExpressionParser::Sum() {
  ExprPtr left = Product();
  while (true) {
    if (TakeOperator("+")) {
      left = Binary("+", std::move(left), Product());
    } else if (TakeOperator("-")) {
      left = Binary("-", std::move(left), Product());
    } else {
      return left;
    }
  }
}

ExprPtr ExpressionParser::Product() {
  ExprPtr left = Unary();
  while (true) {
    std::string op;
    for (std::string_view candidate : {"*", "//", "/", "%"}) {
      if (op.empty() && TakeOperator(candidate)) op = candidate;
    }
    if (op.empty()) return left;
    left = Binary(op, std::move(left), Unary());
  }
}

ExprPtr ExpressionParser::Unary() {
  for (std::string_view op : {"-", "+"}) {
    if (!TakeOperator(op)) continue;
    const Nesting nesting(*this);
    ExprPtr expr = New(Expr::kUnary, std::string(op));
    expr->args.push_back(failed() ? New(Expr::kLiteral) : Unary());
    return expr;
  }
  return Power();
}

ExprPtr ExpressionParser::Power() {
  ExprPtr left = Postfix(Primary());
  if (TakeOperator("**")) {
    const Nesting nesting(*this);
    left = Binary("**", std::move(left), failed() ? New(Expr::kLiteral) : Unary());
  }
  return left;
}

ExprPtr ExpressionParser::Postfix(ExprPtr expr) {
  while (!failed()) {
    if (TakeOperator(".")) {
      ExprPtr attribute = New(Expr::kAttribute, ExpectIdentifier());
      attribute->args.push_back(std::move(expr));
      expr = std::move(attribute);
    } else if (TakeOperator("[")) {
      expr = Subscript(std::move(expr));
    } else if (TakeOperator("(")) {
      ExprPtr call = New(Expr::kCall);
      call->args.push_back(std::move(expr));
      Arguments(*call);
      expr = std::move(call);
    } else if (TakeOperator("|")) {
      ExprPtr filter = New(Expr::kFilter, ExpectIdentifier());
      filter->args.push_back(std::move(expr));
      if (TakeOperator("(")) Arguments(*filter);
      expr = std::move(filter);
    } else if (TakeName("is")) {
      expr = Test(std::move(expr));
    } else {
      return expr;
    }
  }
  return expr;
}

ExprPtr ExpressionParser::Subscript(ExprPtr base) {
  ExprPtr expr = New(Expr::kIndex);
  expr->args.push_back(std::move(base));
  auto at_bound = [&] {
    return Peek().kind == Token::kOperator && (Peek().text == ":" || Peek().text == "]");
  };
  expr->args.push_back(at_bound() ? nullptr : Expression());
  if (TakeOperator(":")) {
    expr->kind = Expr::kSlice;
    expr->args.push_back(at_bound() ? nullptr : Expression());
    expr->args.push_back(TakeOperator(":") && !at_bound() ? Expression() : nullptr);
  } else if (expr->args[1] == nullptr) {
    Fail("expected an index");
  }
  ExpectOperator("]");
  return expr;
}

ExprPtr ExpressionParser::Test(ExprPtr base) {
  ExprPtr test = New(Expr::kTest);
  test->value = Value(TakeName("not"));
  test->name = ExpectIdentifier();
  test->args.push_back(std::move(base));
  if (TakeOperator("(")) {
    Arguments(*test);
  } else if (Peek().kind == Token::kString || Peek().kind == Token::kInteger) {
    test->args.push_back(Primary());  // `is divisibleby 3`
  }
  return test;
}

void ExpressionParser::Arguments(Expr& call) {
  while (!failed() && !TakeOperator(")")) {
    if (Peek().kind == Token::kName && Peek(1).kind == Token::kOperator && Peek(1).text == "=") {
      std::string name = Take().text;
      ExpectOperator("=");
      call.named.emplace_back(std::move(name), Expression());
    } else {
      call.args.push_back(Expression());
    }
    if (!TakeOperator(",") && !(Peek().kind == Token::kOperator && Peek().text == ")"))
      Fail("expected ',' or ')'");
  }
}

ExprPtr ExpressionParser::Primary() {
  switch (Peek().kind) {
    case Token::kString: {
      ExprPtr expr = New(Expr::kLiteral);
      std::string text;
      while (Peek().kind == Token::kString) text += Take().text;  // adjacent strings are one
      expr->value = Value::String(std::move(text));
      return expr;
    }
    case Token::kInteger:
    case Token::kFloat: {
      ExprPtr expr = New(Expr::kLiteral);
      const Token token = Take();
      if (token.kind == Token::kFloat) {
        double value = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
        expr->value = Value(value);
      } else {
        int64_t value = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
        expr->value = Value(value);
      }
      return expr;
    }
    case Token::kName:
      return NameOrConstant();
    default:
      break;
  }
  if (TakeOperator("(")) return Parenthesised();
  if (TakeOperator("[")) return ListLiteral();
  if (TakeOperator("{")) return DictLiteral();
  Fail(absl::StrCat("unexpected '", Peek().text, "'"));
  return New(Expr::kLiteral);
}

ExprPtr ExpressionParser::NameOrConstant() {
  ExprPtr expr = New(Expr::kLiteral);
  const std::string name = Take().text;
  if (name == "true" || name == "True") {
    expr->value = Value(true);
  } else if (name == "false" || name == "False") {
    expr->value = Value(false);
  } else if (name == "none" || name == "None" || name == "null") {
    expr->value = Value(None{});
  } else {
    expr->kind = Expr::kName;
    expr->name = name;
  }
  return expr;
}

// (x), or a tuple (x, y), which is a list here.
ExprPtr ExpressionParser::Parenthesised() {
  ExprPtr first = Expression();
  if (!TakeOperator(",")) {
    ExpectOperator(")");
    return first;
  }
  ExprPtr list = New(Expr::kList);
  list->args.push_back(std::move(first));
  while (!failed() && !TakeOperator(")")) {
    list->args.push_back(Expression());
    if (!TakeOperator(",") && !(Peek().kind == Token::kOperator && Peek().text == ")"))
      Fail("expected ',' or ')'");
  }
  return list;
}

ExprPtr ExpressionParser::ListLiteral() {
  ExprPtr list = New(Expr::kList);
  while (!failed() && !TakeOperator("]")) {
    list->args.push_back(Expression());
    if (!TakeOperator(",") && !(Peek().kind == Token::kOperator && Peek().text == "]"))
      Fail("expected ',' or ']'");
  }
  return list;
}

ExprPtr ExpressionParser::DictLiteral() {
  ExprPtr dict = New(Expr::kDict);
  while (!failed() && !TakeOperator("}")) {
    if (Peek().kind != Token::kString) Fail("the keys of a dict are strings");
    std::string key = Take().text;
    ExpectOperator(":");
    dict->named.emplace_back(std::move(key), Expression());
    if (!TakeOperator(",") && !(Peek().kind == Token::kOperator && Peek().text == "}"))
      Fail("expected ',' or '}'");
  }
  return dict;
}

}  // namespace kvring::replica::jinja
