// Evaluator: walks the tree of a template. Internal to jinja. The first error stays and stops everything;
// functions then return Undefined. One render each.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "replica/model/jinja/ast.h"
#include "replica/model/jinja/template.h"

namespace kvring::replica::jinja {

/// Arguments of a call, in the order given and by name.
struct Arguments {
  List positional;
  Dict named;
  /// The argument at `index` or named `name`; nullptr if neither is there.
  const Value* Get(size_t index, std::string_view name) const;
};

class Evaluator {
 public:
  Evaluator(const Dict& variables, int64_t unix_seconds, const RenderLimits& limits);
  /// Empties the namespaces that were made: they may hold each other.
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void Run(const Body& body, Text& out);
  Value Evaluate(const Expr& expr);

  void Fail(std::string_view what, absl::StatusCode code = absl::StatusCode::kInvalidArgument);
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  int64_t unix_seconds() const { return unix_seconds_; }
  const RenderLimits& limits() const { return limits_; }
  /// Counts `n` steps against the limit; for built-ins that work in proportion to n.
  bool Spend(int64_t n);
  /// A string value, unless it is too long.
  Value Checked(Text text);
  /// Steps for copying what a list or dict holds.
  bool SpendCopy(const Value& value) { return Spend(1 + value.Weight() / kBytesPerStep); }
  /// Steps for looking for `needle` in `text`.
  bool SpendSearch(std::string_view text, std::string_view needle);
  /// Equality, paid for.
  bool Same(const Value& a, const Value& b);
  Value NewNamespace(Dict fields);

 private:
  static constexpr int64_t kBytesPerStep = 256;
  enum class Flow { kNormal, kBreak, kContinue };
  using Scope = std::map<std::string, Value, std::less<>>;

  Flow RunBody(const Body& body, Text& out);
  Flow RunStatement(const Statement& statement, Text& out);
  Flow RunIf(const Statement& statement, Text& out);
  void RunFor(const Statement& statement, Text& out);
  void RunSet(const Statement& statement);
  void Emit(const Text& text, Text& out);
  void Assign(const std::vector<std::string>& targets, const Value& value);
  void AssignField(const std::string& name, const std::string& field, Value value);
  bool ItemsOf(const Value& value, List& items);

  Value EvaluateNode(const Expr& expr);
  Value Lookup(const std::string& name) const;
  Value Attribute(const Value& base, const std::string& name);
  Value Index(const Value& base, const Value& key);
  Value Slice(const Expr& expr);
  Value Unary(const Expr& expr);
  Value Binary(const Expr& expr);
  Value Arithmetic(const std::string& op, const Value& left, const Value& right);
  Value Call(const Expr& expr);
  Value CallMacro(const MacroNode& macro, const Arguments& arguments);
  Arguments EvaluateArguments(const Expr& expr);
  bool Contains(const Value& container, const Value& item);

  std::vector<Scope> scopes_;
  std::vector<std::shared_ptr<Dict>> namespaces_;  // shared with the values that stand for them
  RenderLimits limits_;
  int64_t unix_seconds_;
  int64_t steps_ = 0;
  int depth_ = 0;
  int line_ = 1;
  absl::Status status_;
};

/// Built-in filters, tests, functions and string methods (builtins_*.cc). An unknown name fails the
/// evaluator.
Value ApplyFilter(Evaluator& evaluator, std::string_view name, const Value& input,
                  const Arguments& arguments);
bool ApplyTest(Evaluator& evaluator, std::string_view name, const Value& input, const Arguments& arguments);
Value CallFunction(Evaluator& evaluator, std::string_view name, const Arguments& arguments);
Value CallMethod(Evaluator& evaluator, const Value& self, std::string_view name, const Arguments& arguments);
bool IsFunction(std::string_view name);
bool IsMethod(const Value& self, std::string_view name);

/// What str.strip and its kin leave of `text`. sides: 1 left, 2 right, 3 both. `characters` empty: white
/// space.
Text Strip(const Text& text, int sides, std::string_view characters);

}  // namespace kvring::replica::jinja
