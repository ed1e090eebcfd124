// Trace: requests as a simulation plays them. A prompt is a list of spans: equal content, equal tokens, so
// prefixes are shared exactly where the trace says so (a Mooncake hash id is a span of one block). A request
// may wait for an earlier one and go on from its prompt and answer (the turns of a conversation). Plain
// values; pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/block_hash.h"
#include "common/ids.h"
#include "common/instant.h"

namespace kvring::sim {

/// All requests of a simulation ask for one model.
inline constexpr CacheIdentity kSimIdentity{.model = "sim"};

/// `tokens` tokens that any span of the same content begins with.
struct PromptSpan {
  uint64_t content = 0;
  int32_t tokens = 0;
};

struct TraceRequest {
  Duration arrival{};       // since the trace began; with `after`, since that request's end
  int64_t after = -1;       // index of an earlier request that must end first; -1: none
  bool continues = false;   // with `after`: its prompt and answer come before the spans
  uint32_t first_span = 0;  // in Trace::spans
  uint32_t num_spans = 0;
  int32_t span_tokens = 0;  // of its own spans
  int32_t output_tokens = 1;
  uint64_t session = 0;  // 0: none
  uint32_t copy = 0;     // of a scaled trace: copies share nothing
};

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;  // one that waits stands behind the one it waits for
  std::vector<PromptSpan> spans;
  int32_t block_tokens = 16;  // the unit in which prompts share; a fair engine block

  std::span<const PromptSpan> spans_of(const TraceRequest& request) const {
    return std::span(spans).subspan(request.first_span, request.num_spans);
  }
  /// Of one of its spans: copies of a request say other things of the same shape.
  static uint64_t ContentOf(const TraceRequest& request, const PromptSpan& span);
  /// Starts a request at the end of `spans`; its spans follow by AddSpan.
  TraceRequest& AddRequest();
  /// To the last request.
  void AddSpan(PromptSpan span);
};

/// What a header line says of a trace. Prompt tokens without those that follow-up turns repeat.
struct TraceTotals {
  int64_t requests = 0;
  int64_t own_prompt_tokens = 0;
  int64_t output_tokens = 0;
  Duration last_arrival{};
};
TraceTotals Totals(const Trace& trace);

/// Appends the span's tokens: numbers below 2^30, so that spans of different content have no token
/// in common but by chance.
void AppendTokens(PromptSpan span, std::vector<TokenId>& tokens);

/// A text at a grain: every `grain` tokens are one id, so ids = ceil(tokens / grain). Block boundaries that
/// are whole grains stay where they are, in ids as in tokens.
struct History {
  std::vector<TokenId> ids;
  int64_t tokens = 0;

  void Append(PromptSpan span, int32_t grain);
};

/// Arrivals `factor` times as fast; waits between turns stay.
void SpeedUp(Trace& trace, double factor);
/// So many copies of each request at the same time, which share nothing: `copies` times the load.
void Scale(Trace& trace, int32_t copies);

}  // namespace kvring::sim
