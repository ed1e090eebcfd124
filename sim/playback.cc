#include "sim/playback.h"

#include <algorithm>

#include "common/random.h"

namespace kvring::sim {
namespace {
constexpr uint64_t kAnswerStream = 0x616e737765720000;
}  // namespace

Playback::Playback(const Trace& trace, int32_t block_tokens, int32_t grain)
    : trace_(trace), grain_(grain), infinite_(block_tokens / grain) {
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const int64_t after = trace.requests[i].after;
    if (after < 0) {
      arrivals_.push_back(static_cast<uint32_t>(i));
    } else {
      followers_.emplace(after, static_cast<uint32_t>(i));
    }
  }
  std::ranges::stable_sort(arrivals_, {}, [&](uint32_t i) { return trace.requests[i].arrival; });
}

History Playback::PromptOf(uint32_t index) const {
  const TraceRequest& request = trace_.requests[index];
  History prompt;
  if (request.continues) prompt = ended_.at(request.after).history;
  prompt.ids.reserve(prompt.ids.size() + static_cast<size_t>(request.span_tokens / grain_) + 1);
  for (const PromptSpan& span : trace_.spans_of(request))
    prompt.Append({Trace::ContentOf(request, span), span.tokens}, grain_);
  return prompt;
}

int64_t Playback::CeilingOf(const History& prompt, const router::PromptKey& key) {
  return infinite_.Look(prompt.ids, key) * grain_;
}

uint64_t Playback::AnswerContent(uint32_t index) { return MixBits(kAnswerStream + index); }

std::vector<Playback::FollowUp> Playback::End(uint32_t index, History history, uint32_t replica) {
  const int64_t after = request(index).after;
  if (after >= 0 && --ended_.at(after).followers == 0) ended_.erase(after);
  std::vector<FollowUp> next;
  const auto [first, last] = followers_.equal_range(index);
  for (auto it = first; it != last; ++it) next.push_back({it->second, request(it->second).arrival});
  if (next.empty()) return next;
  infinite_.Add(
      std::span(history.ids).first(static_cast<size_t>(std::max<int64_t>(history.tokens - 1, 0) / grain_)));
  ended_[index] = {std::move(history), replica, next.size()};
  return next;
}

}  // namespace kvring::sim
