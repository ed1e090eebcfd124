#include "router/ledger/divergence.h"

#include <algorithm>
#include <vector>

#include "router/ledger/changed_value.h"
#include "router/ledger/matched_runs.h"
#include "router/ledger/structure_change.h"

namespace kvring::router {
namespace {

// Everything that a finding is made of but its shapes.
Divergence Finding(DivergenceClass cause, size_t parting, ByteSpan earlier, ByteSpan now,
                   std::string_view b) {
  Divergence found{.cause = cause, .offset = parting, .earlier = earlier, .now = now};
  found.place = PlaceAt(b, std::min(now.begin, b.size() - 1));
  found.what_if_bytes = parting;
  return found;
}

std::optional<StructureChange> FindStructureChange(std::string_view a, std::string_view b, size_t parting) {
  if (auto change = ToolsChange(a, b, parting)) return change;
  if (auto change = JsonChange(a, b, parting)) return change;
  if (auto change = HistoryCut(a, b, parting)) return change;
  return DocumentsMoved(a, b, parting);
}

// What stays behind the change; nullopt: too little to speak of.
std::optional<Divergence> FromStructure(std::string_view a, std::string_view b, size_t parting,
                                        const StructureChange& change) {
  Divergence found = Finding(change.cause, parting, change.earlier, change.now, b);
  const size_t behind = TotalLength(MatchedRuns(a, change.earlier.end, b, change.now.end));
  found.what_if_bytes = std::min(b.size(), parting + change.same_bytes + behind);
  if (found.what_if_bytes - parting < kMinGainBytes) return std::nullopt;
  return found;
}

size_t BytesWithin(const std::vector<MatchedRun>& runs, size_t end) {
  size_t bytes = 0;
  for (const MatchedRun& run : runs)
    if (run.b < end) bytes += std::min(run.length, end - run.b);
  return bytes;
}

// A text that changed without a form of its own only counts before text that stays for the most part: of its
// own message, or of all that A still had. Two prompts that share a document somewhere are no finding.
bool MostStays(std::string_view a, const std::vector<MatchedRun>& runs, size_t parting,
               const PromptPlace& place) {
  const size_t in_message = BytesWithin(runs, place.record_end);
  if (in_message >= kMinGainBytes && 2 * in_message >= place.record_end - runs.front().b) return true;
  return 2 * TotalLength(runs) >= a.size() - parting;
}

// A prompt that is no chat: its front was dropped, the rest follows.
bool IsFrontDropped(std::string_view a, const MatchedRun& first, size_t parting, const PromptPlace& place) {
  constexpr size_t kMostInserted = 16;
  return place.part == PromptPart::kText && first.b - parting <= kMostInserted &&
         first.a - parting >= kMinRunBytes && first.a + first.length == a.size();
}

std::optional<Divergence> FromText(std::string_view a, std::string_view b, size_t parting) {
  const std::vector<MatchedRun> runs = MatchedRuns(a, parting, b, parting);
  const size_t gain = TotalLength(runs);
  if (gain < kMinGainBytes) return std::nullopt;
  const PromptPlace place = PlaceAt(b, parting);
  ChangedText change =
      ClassifyChange(a, {parting, std::max(parting, runs[0].a)}, b, {parting, runs[0].b}, place.part);
  if (IsFrontDropped(a, runs[0], parting, place)) change.cause = DivergenceClass::kHistoryTruncated;
  const bool formless =
      change.cause == DivergenceClass::kVariableFirst || change.cause == DivergenceClass::kOther;
  if (formless && !MostStays(a, runs, parting, place)) return std::nullopt;
  Divergence found = Finding(change.cause, parting, change.earlier, change.now, b);
  found.what_if_bytes = parting + gain;
  return found;
}

std::optional<Divergence> Find(std::string_view a, std::string_view b) {
  const size_t parting = CommonPrefix(a, b);
  if (parting == a.size() || parting == b.size()) return std::nullopt;
  if (const auto header = HeaderChange(a, b, parting)) {
    Divergence found = Finding(header->cause, parting, header->earlier, header->now, b);
    found.what_if_bytes = a.size();
    return found;
  }
  if (const auto change = FindStructureChange(a, b, parting)) return FromStructure(a, b, parting, *change);
  return FromText(a, b, parting);
}

}  // namespace

std::optional<Divergence> FindDivergence(std::string_view a, std::string_view b) {
  std::optional<Divergence> found = Find(a, b);
  if (found) {
    found->earlier_shape = ShapeOf(a.substr(found->earlier.begin, found->earlier.length()));
    found->now_shape = ShapeOf(b.substr(found->now.begin, found->now.length()));
  }
  return found;
}

}  // namespace kvring::router
