// ReuseLevels: the reuse ledger of one request as far as a log tells it. Each level is a matched length in
// tokens, at most the level above; what is lost from one to the next has a cause:
//
//   L0  prompt tokens                                                    below it: never seen before
//   L1  match if what changes stood behind what stays                    diverged early
//   L2  longest match with any earlier request                           key differs (model, tenant salt)
//   L3  the same under the same key                                      partial block, last token, too short
//   L4  whole blocks: the ceiling                                        not served from cache
//   L9  reported as cached                                               (what is reported above L4: surplus)
//
// Losses and L9 sum to L0: `residual` is always 0. What lies between L4 and L9 (capacity, placement, routing)
// a log without the fleet cannot tell apart. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvring::router {

/// What an engine or provider reuses.
struct ReuseRule {
  int64_t block_tokens = 16;  // whole blocks only
  int64_t min_tokens = 0;     // nothing below so many
};

/// A prompt's tokens, spread evenly over its bytes.
struct PromptSize {
  size_t bytes = 0;
  int64_t tokens = 0;
  int64_t TokensAt(size_t offset) const;
};

/// Tokens that are found when `matched` of `prompt` were seen: whole blocks, never the last token.
int64_t ReusableTokens(const ReuseRule& rule, int64_t matched, int64_t prompt);

/// Matched bytes of one prompt.
struct MatchedBytes {
  size_t if_moved = 0;  // divergence's what-if; less than any_key counts as any_key
  size_t any_key = 0;
  size_t same_key = 0;
};

struct ReuseLevels {
  int64_t prompt = 0;
  int64_t if_moved = 0;
  int64_t any_key = 0;
  int64_t same_key = 0;
  int64_t ceiling = 0;
  std::optional<int64_t> cached;  // as reported
};
ReuseLevels LevelsOf(const ReuseRule& rule, const PromptSize& size, const MatchedBytes& matched,
                     std::optional<int64_t> reported);

struct ReuseSums {
  int64_t requests = 0;
  int64_t prompt = 0;
  int64_t never_seen = 0;
  int64_t diverged = 0;
  int64_t other_key = 0;
  int64_t rounding = 0;
  int64_t ceiling = 0;
  // Of the requests whose cached tokens were reported:
  int64_t told_requests = 0;
  int64_t told_prompt = 0;
  int64_t told_ceiling = 0;
  int64_t told_cached = 0;  // as reported, surplus included
  int64_t not_served = 0;
  int64_t surplus = 0;

  void Add(const ReuseLevels& levels);
  int64_t residual() const {
    return (prompt - never_seen - diverged - other_key - rounding - ceiling) +
           (told_ceiling - not_served - (told_cached - surplus));
  }
  double ceiling_rate() const { return Share(ceiling, prompt); }
  /// Of the told ones alone.
  double told_ceiling_rate() const { return Share(told_ceiling, told_prompt); }
  double achieved_rate() const { return Share(told_cached, told_prompt); }

  static double Share(int64_t part, int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

}  // namespace kvring::router
