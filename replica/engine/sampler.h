// Sampler: one row of logits and a request's parameters in, one token out. Order: bias and penalties, banned
// tokens, temperature, top-k, top-p, min-p, draw. The draw of output token t of choice c is a function of
// (seed, c, t) alone: preemption and batching change nothing, and choice 0 of n = 4 is the run with n = 1.
// Equal logits are ordered by token id. All arithmetic is relative to the largest logit, so no temperature
// and no -inf makes a NaN. Pure; not thread-safe (keeps scratch memory).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "replica/engine/request.h"

namespace kvring::replica {

/// How often each token occurs in a choice's output, in order of first occurrence.
class TokenCounts {
 public:
  void Add(TokenId token);
  std::span<const std::pair<TokenId, int32_t>> entries() const { return entries_; }

 private:
  std::vector<std::pair<TokenId, int32_t>> entries_;
  absl::flat_hash_map<TokenId, size_t> position_;  // look-up only
};

/// Which draw: output token `index` of a choice.
struct DrawKey {
  uint64_t seed = 0;
  int32_t choice = 0;
  int32_t index = 0;
  /// Uniform in [0, 1).
  double Uniform() const;
};

class Sampler {
 public:
  /// nullopt: no token is possible (every logit is -inf or NaN). `banned` tokens are never chosen.
  std::optional<TokenId> Sample(std::span<const float> logits, const SamplingParams& params,
                                const TokenCounts& counts, std::span<const TokenId> banned,
                                const DrawKey& key);

  /// Log probability of `token` and of the `alternatives` most probable ones, by the logits as they are.
  TokenLogprobs Logprobs(std::span<const float> logits, TokenId token, int32_t alternatives);

 private:
  struct Candidate {
    float logit;
    TokenId token;
    /// More probable first, then by id.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
    }
  };

  std::span<const float> Adjust(std::span<const float> logits, const SamplingParams& params,
                                const TokenCounts& counts, std::span<const TokenId> banned);
  void CollectCandidates(std::span<const float> logits);
  void KeepTopK(int32_t k);
  TokenId DrawFromAll(double temperature, double uniform);
  TokenId DrawFromNucleus(const SamplingParams& params, double uniform);

  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

}  // namespace kvring::replica
