// Lexer of the template language: text, {{ }}, {% %}, {# #} with the white-space rules that Hugging Face
// templates are rendered with (trim_blocks and lstrip_blocks on, `-` trims). Errors name the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvring::replica::jinja {

struct Token {
  enum Kind {
    kText,
    kOpenOutput,
    kCloseOutput,
    kOpenBlock,
    kCloseBlock,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;  // text, name, operator, or the value of a string
  int line = 1;
};

absl::StatusOr<std::vector<Token>> Lex(std::string_view source);

}  // namespace kvring::replica::jinja
