// MatchedRuns: what of a prompt B stood in an earlier prompt A behind the place where they part. From a pair
// of offsets on, the two are brought together again and again:
//
//   near   the least i + j, both at most 256 B, behind which 64 B are equal        (a value that changed)
//   far    the next content-defined chunk of B that A has anywhere behind the start (a long text before the
//          stable one, or a text that moved)
//
// Runs are in order of B and do not overlap in B; in A they may come in another order. Pure.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace kvring::router {

inline constexpr size_t kResyncWindowBytes = 256;
inline constexpr size_t kMinRunBytes = 64;
inline constexpr size_t kMaxRuns = 256;

/// A[a, a + length) == B[b, b + length).
struct MatchedRun {
  size_t a = 0;
  size_t b = 0;
  size_t length = 0;
};

/// Bytes at the start of both that are equal.
size_t CommonPrefix(std::string_view a, std::string_view b);

/// Runs behind A[a_begin] and B[b_begin], at most kMaxRuns.
std::vector<MatchedRun> MatchedRuns(std::string_view a, size_t a_begin, std::string_view b, size_t b_begin);

size_t TotalLength(const std::vector<MatchedRun>& runs);

}  // namespace kvring::router
