// GenerationRequest: a whole OpenAI completion or chat body, read and validated once, as an engine needs it.
// Every wrong field is a 400 that names it. Defaults are OpenAI's. Fields that do not change the answer are
// accepted and ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat_message.h"
#include "common/ids.h"
#include "common/openai/api_error.h"

namespace kvring::openai {

enum class Route { kChat, kCompletions };

struct SamplingFields {
  std::optional<int32_t> max_tokens;  // absent: as many as fit
  double temperature = 1;             // [0, 2]
  double top_p = 1;                   // (0, 1]
  int32_t top_k = 0;                  // 0: off (our extension, as in vLLM)
  double min_p = 0;                   // [0, 1] (extension)
  std::optional<uint64_t> seed;
  int32_t n = 1;                    // 1 to 128
  std::vector<std::string> stop;    // up to 16, none empty
  double frequency_penalty = 0;     // [-2, 2]
  double presence_penalty = 0;      // [-2, 2]
  std::optional<int32_t> logprobs;  // top alternatives, 0 to 20; absent: none
  std::map<TokenId, float> logit_bias;
  int32_t min_tokens = 0;   // extension
  bool ignore_eos = false;  // extension
};

/// How dear the request's blocks are once they are cached: lower ones are given up first, pinned ones not
/// before their time is over. Extension: "cache_retention": {"class": "high", "ttl_s": 300}.
enum class CacheClass { kLow, kNormal, kHigh, kPinned };
struct CacheRetentionFields {
  CacheClass cache_class = CacheClass::kNormal;
  int32_t ttl_s = 0;  // since the last use; 1 to 86400 for high and pinned, else 0
};

struct GenerationRequest {
  Route route = Route::kChat;
  std::string model;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;       // completions: the prompt is part of the answer
  std::string cache_salt;  // extension, as in vLLM
  std::string user;
  int32_t priority = 0;  // extension: higher goes first
  CacheRetentionFields cache_retention;
  /// Extension, as in vLLM: of a longer prompt the last so many tokens are kept, and usage says so. Absent: a
  /// prompt that is too long is refused. For one prompt, without echo.
  std::optional<int32_t> truncate_prompt_tokens;
  SamplingFields sampling;

  // Chat.
  std::vector<ChatMessage> messages;
  std::string tools_json;  // raw, empty when absent
  // Completions: one entry per prompt; exactly one of the two lists is filled.
  std::vector<std::string> prompts;
  std::vector<std::vector<TokenId>> prompt_ids;

  std::string canonical;  // canonical bytes of the chat, tools first; empty for completions
};

/// Reads and validates. `body` may be reallocated for padding, never changed.
std::optional<ApiError> ReadGenerationRequest(Route route, std::string& body, GenerationRequest& request);
/// The checks of the values alone, for requests that came another way (gRPC fields). `chat`: max_tokens 0 is
/// refused.
std::optional<ApiError> CheckSampling(const SamplingFields& sampling, bool max_tokens_zero_allowed);
std::optional<ApiError> CheckCacheRetention(const CacheRetentionFields& retention);

}  // namespace kvring::openai
