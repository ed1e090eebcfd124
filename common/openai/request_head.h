// RequestHead: what a router needs of an OpenAI request body, read in one pass with simdjson on-demand,
// everything else untouched and unjudged. Strings are unescaped; the canonical prompt is built while walking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/openai/api_error.h"

namespace kvring::openai {

struct RequestHead {
  std::string model;  // empty when absent
  bool stream = false;
  std::string prompt_cache_key;  // empty when absent
  std::string user;              // empty when absent
  std::string cache_salt;        // empty when absent; separates caches of equal prompts
  int64_t max_tokens = 0;  // max_completion_tokens or max_tokens; 0 when absent or not a positive integer
  int64_t n = 1;
  std::string canonical;      // canonical prompt bytes; empty where the body has no prompt
  size_t messages_begin = 0;  // where the messages begin in `canonical`, behind the tools
  std::string system;  // a `system` field of its own (Anthropic's form): canonical record, not in `canonical`
  std::vector<TokenId> token_ids;  // a prompt given as ids; then `canonical` is empty
};

/// Makes room behind `body` so that the JSON parser may read past its end without copying it. Call before
/// ReadRequestHead (which does it anyway) where the string is filled, to avoid a reallocation:
/// body.reserve(size + kJsonPadding).
inline constexpr size_t kJsonPadding = 64;

/// Reads the head. Errors: 400 for bytes that are no JSON object, for invalid UTF-8 and for lone surrogates
/// in the prompt (TOK-10), with the field named. Batched prompts (an array of strings or of arrays) are
/// routed by prompt 0. `body` may be reallocated for padding, never changed. Thread-safe: each thread keeps
/// its own parser.
std::optional<ApiError> ReadRequestHead(std::string& body, RequestHead& head);

}  // namespace kvring::openai
