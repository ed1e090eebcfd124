#include "replica/model/score_merges.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "replica/model/vocabulary.h"

namespace kvring::replica {
namespace {

// Giants, which Vocabulary refuses, are not tried at each of their bytes.
bool Merges(const TokenizerSpec& spec, size_t i) {
  if (spec.tokens[i].size() > kMaxTokenBytes) return false;
  if (spec.types.empty()) return true;
  const auto type = static_cast<TokenType>(spec.types[i]);
  return type == TokenType::kNormal || type == TokenType::kUserDefined;
}

bool StartsCharacter(char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }

}  // namespace

void AddScoreMerges(std::span<const float> scores, TokenizerSpec& spec) {
  absl::flat_hash_set<absl::string_view> known;
  std::vector<size_t> order;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!Merges(spec, i)) continue;
    known.insert(spec.tokens[i]);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  int32_t rank = -1;
  for (size_t n = 0; n < order.size(); ++n) {
    if (n == 0 || scores[order[n]] != scores[order[n - 1]]) ++rank;
    const absl::string_view token = spec.tokens[order[n]];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!StartsCharacter(token[cut])) continue;
      const absl::string_view left = token.substr(0, cut);
      const absl::string_view right = token.substr(cut);
      if (!known.contains(left) || !known.contains(right)) continue;
      spec.merges.emplace_back(left, right);
      spec.ranks.push_back(rank);
    }
  }
}

}  // namespace kvring::replica
