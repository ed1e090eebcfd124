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

uint64_t Trace::ContentOf(const TraceRequest& request, const PromptSpan& span) {
  return request.copy == 0 ? span.content : MixBits(span.content ^ MixBits(request.copy));
}

void History::Append(PromptSpan span, int32_t grain) {
  tokens += span.tokens;
  const int64_t more = (tokens + grain - 1) / grain - std::ssize(ids);
  AppendTokens({span.content, static_cast<int32_t>(more)}, ids);
}

void Scale(Trace& trace, int32_t copies) {
  const std::vector<TraceRequest> once = std::move(trace.requests);
  trace.requests.clear();
  trace.requests.reserve(once.size() * static_cast<size_t>(copies));
  for (const TraceRequest& request : once) {
    for (int32_t copy = 0; copy < copies; ++copy) {
      TraceRequest& more = trace.requests.emplace_back(request);
      more.copy = static_cast<uint32_t>(copy);
      if (request.after >= 0) more.after = request.after * copies + copy;
      if (request.session != 0 && copy > 0) more.session = MixBits(request.session ^ more.copy) | 1;
    }
  }
}

void SpeedUp(Trace& trace, double factor) {
  for (TraceRequest& request : trace.requests) {
    if (request.after < 0) {
      request.arrival = Duration(static_cast<int64_t>(static_cast<double>(request.arrival.count()) / factor));
    }
  }
}

}  // namespace kvring::sim
