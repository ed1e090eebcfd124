#include "common/openai/usage_breakdown.h"

#include <simdjson.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::openai {
namespace {

using simdjson::dom::object;

absl::Status Wrong(const char* field, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("usage.", field, " ", what));
}

/// Nothing when the field is absent or null.
absl::StatusOr<std::optional<int64_t>> FindCount(const object& usage, const char* field) {
  simdjson::dom::element value;
  if (usage.at_pointer(absl::StrCat("/", field)).get(value) || value.is_null()) return std::nullopt;
  int64_t count = 0;
  if (value.get(count) || count < 0) return Wrong(field, "must be a count of tokens");
  return count;
}

absl::StatusOr<int64_t> Count(const object& usage, const char* field) {
  KVRING_ASSIGN_OR_RETURN(const std::optional<int64_t> count, FindCount(usage, field));
  if (!count.has_value()) return Wrong(field, "is missing");
  return *count;
}

absl::StatusOr<int64_t> CountOrZero(const object& usage, const char* field) {
  KVRING_ASSIGN_OR_RETURN(const std::optional<int64_t> count, FindCount(usage, field));
  return count.value_or(0);
}

absl::StatusOr<UsageBreakdown> CachedInside(const object& usage) {
  UsageBreakdown out;
  KVRING_ASSIGN_OR_RETURN(const int64_t prompt, Count(usage, "prompt_tokens"));
  KVRING_ASSIGN_OR_RETURN(out.read, CountOrZero(usage, "prompt_tokens_details/cached_tokens"));
  KVRING_ASSIGN_OR_RETURN(out.output, CountOrZero(usage, "completion_tokens"));
  if (out.read > prompt) return Wrong("prompt_tokens_details/cached_tokens", "is more than prompt_tokens");
  out.fresh = prompt - out.read;
  for (const char* field : {"cache_read_input_tokens", "cache_creation_input_tokens"}) {
    KVRING_ASSIGN_OR_RETURN(const auto other, FindCount(usage, field));
    if (other.value_or(0) != 0)
      return Wrong(field, "does not go with prompt_tokens: is it inside or beside them?");
  }
  return out;
}

// The Responses form: the names of the one convention, counted as in the other.
absl::StatusOr<UsageBreakdown> ResponsesForm(const object& usage, int64_t cached) {
  UsageBreakdown out{.read = cached};
  KVRING_ASSIGN_OR_RETURN(const int64_t input, Count(usage, "input_tokens"));
  if (cached > input) return Wrong("input_tokens_details/cached_tokens", "is more than input_tokens");
  out.fresh = input - cached;
  KVRING_ASSIGN_OR_RETURN(out.output, CountOrZero(usage, "output_tokens"));
  return out;
}

absl::StatusOr<UsageBreakdown> CachedBeside(const object& usage) {
  KVRING_ASSIGN_OR_RETURN(const auto inside, FindCount(usage, "input_tokens_details/cached_tokens"));
  if (inside.has_value()) return ResponsesForm(usage, *inside);
  UsageBreakdown out;
  KVRING_ASSIGN_OR_RETURN(out.fresh, Count(usage, "input_tokens"));
  KVRING_ASSIGN_OR_RETURN(out.read, CountOrZero(usage, "cache_read_input_tokens"));
  KVRING_ASSIGN_OR_RETURN(out.write, CountOrZero(usage, "cache_creation_input_tokens"));
  KVRING_ASSIGN_OR_RETURN(out.output, CountOrZero(usage, "output_tokens"));
  return out;
}

bool TellsCache(const object& usage) {
  for (const char* field : {"/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens",
                            "/cache_read_input_tokens"}) {
    simdjson::dom::element value;
    if (!usage.at_pointer(field).get(value) && !value.is_null()) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<UsageBreakdown> ReadUsageBreakdown(std::string_view json) {
  simdjson::dom::parser parser;
  object usage;
  if (parser.parse(json.data(), json.size()).get(usage))
    return absl::InvalidArgumentError("usage must be a JSON object");
  KVRING_ASSIGN_OR_RETURN(const auto inside, FindCount(usage, "prompt_tokens"));
  KVRING_ASSIGN_OR_RETURN(const auto beside, FindCount(usage, "input_tokens"));
  if (inside.has_value() && beside.has_value()) return Wrong("input_tokens", "stands beside prompt_tokens");
  KVRING_ASSIGN_OR_RETURN(UsageBreakdown out, beside.has_value() ? CachedBeside(usage) : CachedInside(usage));
  out.cache_told = TellsCache(usage);
  return out;
}

}  // namespace kvring::openai
