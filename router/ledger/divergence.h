// FindDivergence: where and why a prompt parts from an earlier one, though most of it was there: what changed
// in front of text that stayed, what to do, and what would be found if the change stood behind.
//
//   earlier  system: It is 14:32:07. [handbook] user: …        timestamp, 11 B into the system message,
//   now      system: It is 14:32:19. [handbook] user: …        what_if_bytes = all but the time
//
// A prompt that goes on where the earlier one ended has no divergence, and neither has one that says
// something new with nothing of the earlier one behind it. Both are canonical bytes
// (common/canonical_prompt.h), or the text of a completion. The finding tells offsets, lengths and shapes
// (digits 9, letters a and A), never text. Spans are widened to whole values before they are told apart: two
// timestamps share most of their digits. Pure; costs O(|A| + |B|).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "router/ledger/prompt_place.h"

namespace kvring::router {

enum class DivergenceClass {
  kTimestamp,
  kDate,
  kUuid,
  kCounter,
  kNonce,
  kToolsChanged,
  kToolsReordered,
  kKeyOrder,
  kWhitespace,
  kVariableFirst,
  kDocumentsReordered,
  kHistoryTruncated,
  kUserValue,
  kPromptHeader,
  kOther,
};
inline constexpr size_t kDivergenceClasses = 15;

/// "timestamp", "random nonce", "tools reordered" …
std::string_view ClassName(DivergenceClass c);
/// What to change, in one sentence.
std::string_view FixOf(DivergenceClass c);

/// Half-open range of bytes.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
  size_t length() const { return end - begin; }
};

struct Divergence {
  DivergenceClass cause = DivergenceClass::kOther;
  size_t offset = 0;         // first byte of B that differs: what is found of it today
  ByteSpan earlier;          // what changed, in A, widened to whole values
  ByteSpan now;              // the same in B
  PromptPlace place;         // of now.begin in B
  size_t what_if_bytes = 0;  // of B, found if what changed stood behind (≥ offset)
  std::string earlier_shape;
  std::string now_shape;
};

/// Less than this is not worth a word (a generation header is always told).
inline constexpr size_t kMinGainBytes = 256;

std::optional<Divergence> FindDivergence(std::string_view a, std::string_view b);

/// "2026-08-21" to "9999-99-99", "aB3" to "aA9"; runs of more than eight are counted ("a{12}"), and all is
/// cut at 64 B.
std::string ShapeOf(std::string_view text);

}  // namespace kvring::router
