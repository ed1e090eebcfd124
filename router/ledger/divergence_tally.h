// DivergenceTally: findings of the same class at the same place, counted. One is chance; from `alarm_after`
// on it is how the prompts are built. The place is the start of what changed as long as this lies in the
// tools or the system messages (and all before it is equal); farther back, where each conversation has its
// own offsets, the part of the prompt alone. Bounded: of more than kMaxPlaces the sum alone is kept. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "router/ledger/divergence.h"

namespace kvring::router {

/// What the requests lost that parted at one place.
struct DivergencePlace {
  Divergence last;
  std::string where;     // of the last request, as it was named
  std::string now_text;  // what it had there; kept only where asked for
  int64_t at_token = 0;  // of its first difference
  int64_t count = 0;
  int64_t lost_tokens = 0;  // reusable if it were mended
  size_t least_offset = 0;  // of what is found today, in bytes
  size_t most_offset = 0;
};

class DivergenceTally {
 public:
  static constexpr size_t kMaxPlaces = 4096;

  /// `prompt` is the one that `divergence` is in; `where` names the request; `lost_tokens` ≥ 0.
  DivergencePlace& Add(const Divergence& divergence, std::string_view prompt, std::string_view where,
                       int64_t lost_tokens);

  /// At least `alarm_after` times; those that lost most first.
  std::vector<DivergencePlace> Alarms(int64_t alarm_after) const;

 private:
  using Key = std::tuple<DivergenceClass, PromptPart, size_t, uint64_t>;
  std::map<Key, DivergencePlace> places_;
  DivergencePlace beyond_;  // of places that were not kept
};

}  // namespace kvring::router
