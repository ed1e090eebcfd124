#include "replica/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/random.h"

namespace kvring::replica {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

bool NeedsAdjusting(const SamplingParams& p, const TokenCounts& counts, std::span<const TokenId> banned) {
  const bool penalised = (p.frequency_penalty != 0 || p.presence_penalty != 0) && !counts.entries().empty();
  return penalised || !p.logit_bias.empty() || !banned.empty();
}

/// The first of the largest logits; nullopt when all are -inf or NaN.
std::optional<TokenId> ArgMax(std::span<const float> logits) {
  float best = kMinusInfinity;
  TokenId token = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      token = static_cast<TokenId>(i);
    }
  }
  return token < 0 ? std::nullopt : std::optional(token);
}

}  // namespace

void TokenCounts::Add(TokenId token) {
  const auto [entry, fresh] = position_.try_emplace(token, entries_.size());
  if (fresh) entries_.emplace_back(token, 0);
  ++entries_[entry->second].second;
}

double DrawKey::Uniform() const {
  const uint64_t stream = MixBits(MixBits(seed) + static_cast<uint64_t>(choice));
  return static_cast<double>(MixBits(stream + static_cast<uint64_t>(index)) >> 11) * 0x1.0p-53;
}

std::optional<TokenId> Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                                       const TokenCounts& counts, std::span<const TokenId> banned,
                                       const DrawKey& key) {
  if (NeedsAdjusting(params, counts, banned)) logits = Adjust(logits, params, counts, banned);
  if (params.temperature == 0) return ArgMax(logits);
  CollectCandidates(logits);
  if (candidates_.empty()) return std::nullopt;
  if (params.top_k > 0) KeepTopK(params.top_k);
  if (params.top_p >= 1 && params.min_p <= 0) return DrawFromAll(params.temperature, key.Uniform());
  return DrawFromNucleus(params, key.Uniform());
}

std::span<const float> Sampler::Adjust(std::span<const float> logits, const SamplingParams& params,
                                       const TokenCounts& counts, std::span<const TokenId> banned) {
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) adjusted_[token] += bias;
  for (const auto& [token, count] : counts.entries()) {
    adjusted_[token] -= params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
  }
  for (const TokenId token : banned) adjusted_[token] = kMinusInfinity;
  return adjusted_;
}

// Tokens that can be drawn at all; the comparison leaves out -inf and NaN. +inf counts as the largest finite
// logit.
void Sampler::CollectCandidates(std::span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kMinusInfinity) {
      candidates_.push_back(
          {std::min(logits[i], std::numeric_limits<float>::max()), static_cast<TokenId>(i)});
    }
  }
}

void Sampler::KeepTopK(int32_t k) {
  if (static_cast<size_t>(k) >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + k, candidates_.end());
  candidates_.resize(k);
  std::sort(candidates_.begin(), candidates_.end());
}

// Inverse of the cumulative distribution over the candidates as they lie: two passes, no sort.
TokenId Sampler::DrawFromAll(double temperature, double uniform) {
  const double largest = std::min_element(candidates_.begin(), candidates_.end())->logit;
  weights_.clear();
  double total = 0;
  for (const Candidate& c : candidates_) {
    weights_.push_back(std::exp((c.logit - largest) / temperature));
    total += weights_.back();
  }
  double target = uniform * total;
  size_t chosen = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] <= 0) continue;
    chosen = i;  // rounding can leave target above 0 at the end: then the last possible one
    target -= weights_[i];
    if (target < 0) break;
  }
  return candidates_[chosen].token;
}

// Candidates leave a heap in order of probability until top_p is reached, so that a peaked distribution costs
// O(V) and not O(V log V). The nucleus is the shortest prefix with at least top_p of the mass; min_p ends it
// where a token falls below min_p times the first.
TokenId Sampler::DrawFromNucleus(const SamplingParams& params, double uniform) {
  const auto after = [](const Candidate& a, const Candidate& b) { return b < a; };
  std::make_heap(candidates_.begin(), candidates_.end(), after);
  const double largest = candidates_.front().logit;
  const auto weight = [&](const Candidate& c) { return std::exp((c.logit - largest) / params.temperature); };
  double total = 0;
  for (const Candidate& c : candidates_) total += weight(c);

  weights_.clear();
  double mass = 0;
  auto end = candidates_.end();
  while (end != candidates_.begin() && (mass == 0 || mass < params.top_p * total)) {
    const double next = weight(candidates_.front());
    if (mass > 0 && (next <= 0 || next < params.min_p)) break;
    std::pop_heap(candidates_.begin(), end, after);
    --end;
    weights_.push_back(next);
    mass += next;
  }
  double target = uniform * mass;
  size_t chosen = 0;
  while (chosen + 1 < weights_.size() && (target -= weights_[chosen]) >= 0) ++chosen;
  return candidates_[candidates_.size() - 1 - chosen].token;
}

TokenLogprobs Sampler::Logprobs(std::span<const float> logits, TokenId token, int32_t alternatives) {
  CollectCandidates(logits);
  if (candidates_.empty()) return {.logprob = kMinusInfinity};
  const double largest = std::min_element(candidates_.begin(), candidates_.end())->logit;
  double total = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - largest);
  const double log_total = largest + std::log(total);
  const auto logprob = [&](float logit) { return static_cast<float>(logit - log_total); };

  TokenLogprobs result{.logprob = logprob(logits[token])};
  const auto count = std::min<size_t>(alternatives, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end());
  for (size_t i = 0; i < count; ++i) {
    result.top.push_back({candidates_[i].token, logprob(candidates_[i].logit)});
  }
  return result;
}

}  // namespace kvring::replica
