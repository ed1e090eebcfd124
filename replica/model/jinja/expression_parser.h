// Expressions of the template language, by precedence climbing: conditional, or, and, not, comparison, ~, +
// -, * / // %, unary,
// **, then postfixes (. [] () |filter, is test). Internal to jinja.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "replica/model/jinja/ast.h"
#include "replica/model/jinja/lexer.h"

namespace kvring::replica::jinja {

class ExpressionParser {
 public:
  static constexpr int kMaxDepth = 64;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  ExprPtr Expression();
  /// Without `x if y else z`: what a for loop walks.
  ExprPtr WithoutConditional() { return Or(); }

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  void ExpectOperator(std::string_view op);
  std::string ExpectIdentifier();

  /// The first error stays; parsing goes on harmlessly until it is seen.
  void Fail(std::string_view what);
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }

  /// Counts nesting while it lives; fails the parse above kMaxDepth.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.Fail("nested too deeply");
    }
    ~Nesting() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };

 private:
  ExprPtr New(Expr::Kind kind, std::string name = "") const;
  ExprPtr Binary(std::string op, ExprPtr left, ExprPtr right) const;
  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Comparison();
  ExprPtr Concat();
  ExprPtr Sum();
  ExprPtr Product();
  ExprPtr Unary();
  ExprPtr Power();
  ExprPtr Postfix(ExprPtr expr);
  ExprPtr Primary();
  ExprPtr NameOrConstant();
  ExprPtr ListLiteral();
  ExprPtr DictLiteral();
  ExprPtr Parenthesised();
  ExprPtr Subscript(ExprPtr base);
  ExprPtr Test(ExprPtr base);
  void Arguments(Expr& call);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  absl::Status status_;
};

}  // namespace kvring::replica::jinja
