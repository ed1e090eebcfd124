// Parser of the template language. Statements: if, for (with if and else, break, continue), set (also of a
// namespace's field and as a block), macro; generation blocks are transparent. Not there by intent: include,
// import, extends, call blocks: a template reads no file. Nesting is bounded (64), so no source can exhaust
// the stack (SEC-07). Errors name the line.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "replica/model/jinja/ast.h"

namespace kvring::replica::jinja {

absl::StatusOr<Body> Parse(std::string_view source);

}  // namespace kvring::replica::jinja
