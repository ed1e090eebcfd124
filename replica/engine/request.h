// What goes into the engine (EngineRequest) and what comes out (EngineEvent). Plain values; text, stop
// strings and wire formats belong to replica/server. The order of a request's events:
//
//   Admitted  PromptToken* (Token | Finished)*  Done        or, at any point, Failed and nothing after it
//
// Every choice has exactly one Finished, and no Token after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/instant.h"
#include "replica/kv/block_manager.h"

namespace kvring::replica {

/// Whose request it is; they share the engine fairly (waiting_queue.h). 0: nobody in particular.
using TenantId = StrongId<struct TenantIdTag, uint64_t>;

struct SamplingParams {
  float temperature = 1;        // 0: greedy; [0, inf)
  int32_t top_k = 0;            // 0: off
  float top_p = 1;              // (0, 1]
  float min_p = 0;              // [0, 1): least probability as a share of the most probable token's
  float frequency_penalty = 0;  // [-2, 2], over the choice's own output, as is presence_penalty
  float presence_penalty = 0;
  uint64_t seed = 0;       // the caller draws one when the client gave none
  int32_t min_tokens = 0;  // no end-of-sequence token before that many output tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  /// Set: each token carries its log probability and that many top alternatives (0 … kMaxLogprobs), of the
  /// model's own distribution, before temperature and penalties.
  std::optional<int32_t> logprobs;
};

struct EngineRequest {
  RequestId id;  // unique among the requests in the engine
  std::vector<TokenId> prompt;
  CacheRoot root;  // MakeCacheRoot(model, adapter, salt)
  int32_t n = 1;   // choices
  /// Absent: as many as fit the limit. 0: the prompt is computed (and its log probabilities given), nothing
  /// is generated.
  std::optional<int32_t> max_tokens;
  std::vector<TokenId> eos_tokens;
  bool ignore_eos = false;
  /// A PromptToken event for every prompt token. Such a request takes nothing from the cache at first
  /// admission, since the logits of all its tokens have to be computed; its blocks serve others.
  bool prompt_logprobs = false;
  int32_t priority = 0;  // higher goes first
  TenantId tenant;
  CacheRetention retention;  // of the request's blocks, once they are cached
  SamplingParams sampling;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

/// Present when asked for and the executor gives logits.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<TokenLogprob> top;  // most probable first; equal ones by token id
};

struct EngineUsage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;  // over all choices; an end-of-sequence token counts
  int32_t cached_tokens = 0;      // of the first admission
};

enum class FinishReason : uint8_t { kStop, kLength };

struct EngineEvent {
  /// The request has its blocks.
  struct Admitted {
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;
    Duration queued{};  // from Add to the step that admitted it
  };
  /// In order of position; the first prompt token has no log probability.
  struct PromptToken {
    TokenId token = 0;
    std::optional<TokenLogprobs> logprobs;
  };
  struct Token {
    int32_t choice = 0;
    TokenId token = 0;
    bool end_of_sequence = false;  // the token that ended the choice: not part of its text
    std::optional<TokenLogprobs> logprobs;
  };
  struct Finished {
    int32_t choice = 0;
    FinishReason reason = FinishReason::kStop;
  };
  struct Done {
    EngineUsage usage;
  };
  /// The executor failed, or no token had a finite logit.
  struct Failed {
    absl::Status status;
    EngineUsage usage;
  };
  using Kind = std::variant<Admitted, PromptToken, Token, Finished, Done, Failed>;

  RequestId request;
  Kind what;
};

}  // namespace kvring::replica
