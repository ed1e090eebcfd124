#include "replica/model/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/jinja/expression_parser.h"

namespace kvring::replica::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  absl::StatusOr<Body> Run() {
    Body body = ParseBody({});
    if (in_.failed()) return in_.status();
    return body;
  }

 private:
  // Statements up to a block that starts with one of `ends` (not taken), or to the end of the template if
  // there are none.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Nesting nesting(in_);
    Body body;
    while (!in_.failed()) {
      const Token& token = in_.Peek();
      if (token.kind == Token::kEnd) {
        if (ends.size() > 0)
          in_.Fail(absl::StrCat("expected '", std::string(*ends.begin()), "' before the end"));
        return body;
      }
      if (token.kind == Token::kOpenBlock &&
          std::find(ends.begin(), ends.end(), in_.Peek(1).text) != ends.end())
        return body;
      ParseStatement(body);
    }
    return body;
  }

  std::unique_ptr<Statement> New(Statement::Kind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = in_.Peek().line;
    return statement;
  }

  void ParseStatement(Body& body) {
    switch (in_.Peek().kind) {
      case Token::kText:
        body.push_back(New(Statement::kText));
        body.back()->text = in_.Take().text;
        return;
      case Token::kOpenOutput:
        in_.Take();
        body.push_back(New(Statement::kOutput));
        body.back()->expr = in_.Expression();
        return Expect(Token::kCloseOutput, "}}");
      case Token::kOpenBlock:
        in_.Take();
        return ParseBlock(body);
      default:
        in_.Fail("unexpected token");
    }
  }

  void ParseBlock(Body& body) {
    if (in_.TakeName("if")) return body.push_back(ParseIf());
    if (in_.TakeName("for")) return body.push_back(ParseFor());
    if (in_.TakeName("set")) return body.push_back(ParseSet());
    if (in_.TakeName("macro")) return body.push_back(ParseMacro());
    if (in_.TakeName("generation")) return ParseGeneration(body);
    for (const auto& [name, kind] :
         {std::pair{"break", Statement::kBreak}, {"continue", Statement::kContinue}}) {
      if (!in_.TakeName(name)) continue;
      body.push_back(New(kind));
      return CloseBlock();
    }
    in_.Fail(absl::StrCat("'", in_.Peek().text, "' is not a statement of this template language"));
  }

  // {% generation %} … {% endgeneration %} marks what the assistant wrote; it prints its body.
  void ParseGeneration(Body& body) {
    CloseBlock();
    Body inner = ParseBody({"endgeneration"});
    EndBlock("endgeneration");
    std::move(inner.begin(), inner.end(), std::back_inserter(body));
  }

  std::unique_ptr<Statement> ParseIf() {
    auto statement = New(Statement::kIf);
    ExprPtr condition = in_.Expression();
    CloseBlock();
    while (!in_.failed()) {
      Body body = ParseBody({"endif", "elif", "else"});
      const bool last = condition == nullptr;
      statement->branches.emplace_back(std::move(condition), std::move(body));
      in_.Take();  // {%
      if (in_.TakeName("endif")) break;
      if (last) in_.Fail("nothing but endif may follow else");
      condition = in_.TakeName("elif") ? in_.Expression() : (in_.Take(), nullptr);
      CloseBlock();
    }
    CloseBlock();
    return statement;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto statement = New(Statement::kFor);
    statement->targets = Targets();
    if (!in_.TakeName("in")) in_.Fail("expected 'in'");
    statement->expr = in_.WithoutConditional();
    if (in_.TakeName("if")) statement->filter = in_.WithoutConditional();
    in_.TakeName("recursive");
    CloseBlock();
    statement->body = ParseBody({"endfor", "else"});
    in_.Take();  // {%
    if (in_.TakeName("else")) {
      CloseBlock();
      statement->otherwise = ParseBody({"endfor"});
      in_.Take();
    }
    if (!in_.TakeName("endfor")) in_.Fail("expected 'endfor'");
    CloseBlock();
    return statement;
  }

  std::vector<std::string> Targets() {
    std::vector<std::string> targets;
    const bool parenthesised = in_.TakeOperator("(");
    do {
      targets.push_back(in_.ExpectIdentifier());
    } while (!in_.failed() && in_.TakeOperator(","));
    if (parenthesised) in_.ExpectOperator(")");
    return targets;
  }

  std::unique_ptr<Statement> ParseSet() {
    auto statement = New(Statement::kSet);
    statement->targets = Targets();
    if (in_.TakeOperator(".")) statement->text = in_.ExpectIdentifier();
    if (in_.TakeOperator("=")) {
      statement->expr = in_.Expression();
      CloseBlock();
      return statement;
    }
    statement->kind = Statement::kSetBlock;
    CloseBlock();
    statement->body = ParseBody({"endset"});
    EndBlock("endset");
    return statement;
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto statement = New(Statement::kMacro);
    statement->macro = std::make_unique<MacroNode>();
    MacroNode& macro = *statement->macro;
    macro.name = in_.ExpectIdentifier();
    in_.ExpectOperator("(");
    while (!in_.failed() && !in_.TakeOperator(")")) {
      std::string name = in_.ExpectIdentifier();
      macro.parameters.emplace_back(std::move(name), in_.TakeOperator("=") ? in_.Expression() : nullptr);
      in_.TakeOperator(",");
    }
    CloseBlock();
    macro.body = ParseBody({"endmacro"});
    EndBlock("endmacro");
    return statement;
  }

  void Expect(Token::Kind kind, std::string_view what) {
    if (in_.Peek().kind != kind)
      in_.Fail(absl::StrCat("expected '", std::string(what), "' before '", in_.Peek().text, "'"));
    in_.Take();
  }

  void CloseBlock() { Expect(Token::kCloseBlock, "%}"); }

  void EndBlock(std::string_view name) {
    in_.Take();  // {%
    if (!in_.TakeName(name)) in_.Fail(absl::StrCat("expected '", std::string(name), "'"));
    CloseBlock();
  }

  ExpressionParser in_;
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  KVRING_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace kvring::replica::jinja
