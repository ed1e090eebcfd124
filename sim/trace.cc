#include "sim/trace.h"

#include <algorithm>

#include "common/random.h"

namespace kvring::sim {

TraceRequest& Trace::AddRequest() {
  requests.push_back({.first_span = static_cast<uint32_t>(spans.size())});
  return requests.back();
}

void Trace::AddSpan(PromptSpan span) {
  spans.push_back(span);
  ++requests.back().num_spans;
  requests.back().span_tokens += span.tokens;
}

TraceTotals Totals(const Trace& trace) {
  TraceTotals totals;
  for (const TraceRequest& request : trace.requests) {
    ++totals.requests;
    totals.own_prompt_tokens += request.span_tokens;
    totals.output_tokens += request.output_tokens;
    if (request.after < 0) totals.last_arrival = std::max(totals.last_arrival, request.arrival);
  }
  return totals;
}

void AppendTokens(PromptSpan span, std::vector<TokenId>& tokens) {
  const size_t before = tokens.size();
  tokens.resize(before + static_cast<size_t>(span.tokens));
  auto next = static_cast<uint32_t>(MixBits(span.content));
  for (size_t i = before; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(next++ & 0x3fffffffU);
}

void SpeedUp(Trace& trace, double factor) {
  for (TraceRequest& request : trace.requests) {
    if (request.after < 0) {
      request.arrival = Duration(static_cast<int64_t>(static_cast<double>(request.arrival.count()) / factor));
    }
  }
}

}  // namespace kvring::sim
