// Byte-pair encoding of one pre-token (Sennrich, Haddow, Birch 2016): start from single symbols, merge the
// adjacent pair of lowest rank (leftmost on ties) until none is left. O(n log n) in the pre-token's length by
// a heap over a linked list, so a megabyte without a space is no attack. Immutable after Build; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace kvring::replica {

class BpeMerges {
 public:
  /// `left` and `right` merge into `merged`. The first of equal pairs counts.
  struct Rule {
    TokenId left;
    TokenId right;
    TokenId merged;
    int32_t rank;
  };
  void Add(const Rule& rule);

  /// Merges in place: `symbols` are the ids of single symbols on entry, of the final tokens on return.
  void Apply(std::vector<TokenId>& symbols) const;

 private:
  struct Merge {
    int32_t rank;
    TokenId merged;
  };

  const Merge* Find(TokenId left, TokenId right) const;
  void ApplyShort(std::vector<TokenId>& symbols) const;
  void ApplyLong(std::vector<TokenId>& symbols) const;

  absl::flat_hash_map<uint64_t, Merge> merges_;  // looked up only, never walked
};

}  // namespace kvring::replica
