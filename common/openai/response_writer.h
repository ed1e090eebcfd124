// Writing OpenAI answers from token events: SSE chunks and whole objects, for chat and for completions. Used
// by the replica's HTTP service and by the router for replicas behind gRPC, so both give the same bytes.
// Appends to strings; no tree, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/openai/api_error.h"
#include "common/openai/generation_request.h"

namespace kvring::openai {

/// What is equal in every chunk of an answer.
struct AnswerIdentity {
  Route route = Route::kChat;
  std::string id;       // "chatcmpl-…" or "cmpl-…"
  int64_t created = 0;  // Unix seconds
  std::string model;    // as the client named it
};

struct TopLogprob {
  std::string token;  // raw bytes
  double logprob = 0;
};

struct TokenLogprob {
  std::string token;  // raw bytes of the token; may be a part of a character
  double logprob = 0;
  std::vector<TopLogprob> top;
};

/// New text of one choice. An empty finish_reason means that it goes on.
struct ChoiceDelta {
  int32_t index = 0;
  std::string_view text;
  std::string_view finish_reason;
  std::span<const TokenLogprob> logprobs;
};

struct UsageCounts {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t truncated_tokens = 0;  // cut off the front of the prompt on request; not in prompt_tokens
};

/// {"prompt_tokens":…,"completion_tokens":…,"total_tokens":…,"prompt_tokens_details":{"cached_tokens":…}}; of
/// a truncated prompt the details also have "truncated":true,"kept_span":[first, end) in tokens of the whole
/// one.
void AppendUsage(std::string& out, const UsageCounts& usage);

/// One streamed answer. Each call appends whole SSE events to `out`.
class StreamWriter {
 public:
  StreamWriter(AnswerIdentity identity, bool include_usage, bool logprobs);

  /// The first delta of a choice carries the role (chat).
  void Delta(std::string& out, const ChoiceDelta& delta);
  /// The usage chunk (choices: []) if it was asked for, then [DONE].
  void Finish(std::string& out, const UsageCounts& usage);
  /// An in-band error event; the stream ends after it without [DONE].
  static void Error(std::string& out, const ApiError& error);

 private:
  void Open(std::string& out) const;
  void Close(std::string& out) const;

  AnswerIdentity identity_;
  std::string head_;  // `data: {"id":…,"model":…,"choices":[` of every chunk
  bool include_usage_;
  bool logprobs_;
  std::vector<bool> started_;
  std::vector<size_t> text_offset_;
};

/// One whole answer: collect deltas, then Finish.
class AnswerWriter {
 public:
  AnswerWriter(AnswerIdentity identity, bool logprobs);
  void Delta(const ChoiceDelta& delta);
  std::string Finish(const UsageCounts& usage) const;

 private:
  struct Choice {
    std::string text;
    std::string finish_reason;
    std::vector<TokenLogprob> logprobs;
  };

  AnswerIdentity identity_;
  bool logprobs_;
  std::map<int32_t, Choice> choices_;
};

struct ModelEntry {
  std::string id;
  int32_t context_length = 0;  // 0: unknown
  bool chat = true;
};

/// The answer of GET /v1/models.
std::string ModelList(std::span<const ModelEntry> models, int64_t created);

}  // namespace kvring::openai
