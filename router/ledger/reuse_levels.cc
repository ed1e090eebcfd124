#include "router/ledger/reuse_levels.h"

#include <algorithm>

namespace kvring::router {

int64_t PromptSize::TokensAt(size_t offset) const {
  if (bytes == 0) return 0;
  return static_cast<int64_t>(static_cast<unsigned __int128>(offset) * static_cast<uint64_t>(tokens) / bytes);
}

int64_t ReusableTokens(const ReuseRule& rule, int64_t matched, int64_t prompt) {
  const int64_t whole =
      std::min(matched, std::max<int64_t>(prompt - 1, 0)) / rule.block_tokens * rule.block_tokens;
  return whole < rule.min_tokens ? 0 : whole;
}

ReuseLevels LevelsOf(const ReuseRule& rule, const PromptSize& size, const MatchedBytes& matched,
                     std::optional<int64_t> reported) {
  ReuseLevels levels{.prompt = size.tokens};
  levels.if_moved = size.TokensAt(std::max(matched.if_moved, matched.any_key));
  levels.any_key = std::min(levels.if_moved, size.TokensAt(matched.any_key));
  levels.same_key = std::min(levels.any_key, size.TokensAt(matched.same_key));
  levels.ceiling = ReusableTokens(rule, levels.same_key, levels.prompt);
  levels.cached = reported;
  return levels;
}

void ReuseSums::Add(const ReuseLevels& levels) {
  ++requests;
  prompt += levels.prompt;
  never_seen += levels.prompt - levels.if_moved;
  diverged += levels.if_moved - levels.any_key;
  other_key += levels.any_key - levels.same_key;
  rounding += levels.same_key - levels.ceiling;
  ceiling += levels.ceiling;
  if (!levels.cached) return;
  const int64_t within = std::min(*levels.cached, levels.ceiling);
  ++told_requests;
  told_prompt += levels.prompt;
  told_ceiling += levels.ceiling;
  told_cached += *levels.cached;
  not_served += levels.ceiling - within;
  surplus += *levels.cached - within;
}

}  // namespace kvring::router
