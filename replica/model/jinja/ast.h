// The tree of a parsed template. Immutable after Parse.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "replica/model/jinja/value.h"

namespace kvring::replica::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// What each kind keeps: `name`, `value`, `args` in the order given here; `named` are keyword arguments or
/// dict entries.
struct Expr {
  enum Kind {
    kLiteral,      // value
    kName,         // name
    kList,         // args
    kDict,         // named
    kAttribute,    // args[0] . name
    kIndex,        // args[0] [ args[1] ]
    kSlice,        // args[0] [ args[1] : args[2] : args[3] ], absent parts are null
    kCall,         // args[0] ( args[1…], named )
    kFilter,       // args[0] | name ( args[1…], named )
    kTest,         // args[0] is name args[1…]; value true: is not
    kUnary,        // name: not, -, +
    kBinary,       // name: or and == != < > <= >= in, not in, + - * / // % ** ~
    kConditional,  // args[0] if args[1] else args[2] (may be null)
  };
  Kind kind;
  int line = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // name, default or null
  Body body;
};

struct Statement {
  enum Kind { kText, kOutput, kIf, kFor, kSet, kSetBlock, kMacro, kBreak, kContinue };
  Kind kind;
  int line = 1;
  std::string text;                                // kText; kSet: attribute of a namespace, or empty
  std::vector<std::string> targets;                // kFor, kSet, kSetBlock
  ExprPtr expr;                                    // kOutput, kFor (what is walked), kSet
  ExprPtr filter;                                  // kFor: `if` of the loop, or null
  std::vector<std::pair<ExprPtr, Body>> branches;  // kIf: condition and body; else: null condition
  Body body;                                       // kFor, kSetBlock
  Body otherwise;                                  // kFor: else
  std::unique_ptr<MacroNode> macro;                // kMacro
};

}  // namespace kvring::replica::jinja
