// Template: the Jinja subset that chat templates are written in, rendered in a closed box: it sees the
// variables that it is given and nothing else, attributes exist only on dicts, namespaces and loop variables,
// and steps, output and depth are bounded (SEC-07), so any source ends within a second with text or an error.
// Immutable after Parse; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "replica/model/jinja/ast.h"

namespace kvring::replica::jinja {

struct RenderLimits {
  int64_t max_steps = 1'000'000;       // expressions and statements evaluated
  size_t max_bytes = size_t{8} << 20;  // output, and any single string on the way to it
  int max_depth = 64;                  // macro calls
};

class Template {
 public:
  static absl::StatusOr<Template> Parse(std::string_view source);

  /// Renders with these variables. `unix_seconds` is what strftime_now reads (UTC). Errors: InvalidArgument
  /// with the line and the reason; raise_exception gives FailedPrecondition with its text; ResourceExhausted
  /// for a limit.
  absl::StatusOr<Text> Render(const Dict& variables, int64_t unix_seconds,
                              const RenderLimits& limits = {}) const;

 private:
  explicit Template(Body body) : body_(std::move(body)) {}
  Body body_;
};

}  // namespace kvring::replica::jinja
