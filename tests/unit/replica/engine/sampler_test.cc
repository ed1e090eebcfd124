#include "replica/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/random.h"

namespace kvring::replica {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(uint64_t seed, int n) {
  Random random(seed);
  std::vector<float> logits(n);
  for (float& x : logits) x = static_cast<float>(random.Uniform() * 8 - 4);
  return logits;
}

/// The distribution that the parameters define, the long way: full sort, full normalisation.
std::vector<double> Expected(std::vector<float> logits, const SamplingParams& p) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), p.top_k));
  double total = 0;
  std::vector<double> weights;
  for (int t : order)
    total += weights.emplace_back(std::exp((double{logits[t]} - logits[order[0]]) / p.temperature));
  double kept = 0;
  size_t count = 0;
  for (; count < order.size(); ++count) {
    if (count > 0 && (kept >= double{p.top_p} * total || weights[count] < double{p.min_p} * weights[0]))
      break;
    kept += weights[count];
  }
  std::vector<double> result(logits.size(), 0.0);
  for (size_t i = 0; i < count; ++i) result[order[i]] = weights[i] / kept;
  return result;
}

/// Pearson's statistic of 10,000 draws; also checks that nothing impossible is drawn.
double ChiSquare(const std::vector<float>& logits, const SamplingParams& params, int& cells) {
  constexpr int kDraws = 10'000;
  const std::vector<double> expected = Expected(logits, params);
  std::vector<int> seen(logits.size(), 0);
  Sampler sampler;
  for (int i = 0; i < kDraws; ++i) ++seen[*sampler.Sample(logits, params, {}, {}, {params.seed, 0, i})];
  double statistic = 0, rest_expected = 0, rest_seen = 0;
  cells = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    if (expected[t] == 0) {
      EXPECT_EQ(seen[t], 0) << t;
    }
    if (expected[t] * kDraws < 5) {  // too rare for a cell of its own
      rest_expected += expected[t] * kDraws;
      rest_seen += seen[t];
      continue;
    }
    statistic += std::pow(seen[t] - expected[t] * kDraws, 2) / (expected[t] * kDraws);
    ++cells;
  }
  if (rest_expected > 5) {
    statistic += std::pow(rest_seen - rest_expected, 2) / rest_expected;
    ++cells;
  }
  return statistic;
}

TEST(SamplerTest, Draws_FollowTheDefinedDistribution_SMP05) {
  const SamplingParams variants[] = {
      {.temperature = 1, .seed = 1},
      {.temperature = 0.7f, .top_p = 0.9f, .seed = 2},
      {.temperature = 1.5f, .top_k = 7, .seed = 3},
      {.temperature = 1, .top_k = 12, .top_p = 0.5f, .seed = 4},
      {.temperature = 1, .min_p = 0.2f, .seed = 5},
  };
  for (const SamplingParams& params : variants) {
    int cells = 0;
    const double statistic = ChiSquare(RandomLogits(params.seed, 40), params, cells);
    // Mean k - 1, deviation sqrt(2 (k - 1)): four deviations above is beyond the 99.9 % point.
    EXPECT_LT(statistic, cells - 1 + 4 * std::sqrt(2.0 * std::max(1, cells - 1))) << "seed " << params.seed;
  }
}

TEST(SamplerTest, MixedRows_NoNaNAndTheAllowedToken_SMP05) {
  Sampler sampler;
  SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 9, 3, 2}, greedy, {}, std::vector<TokenId>{1}, {}), 2);
  EXPECT_EQ(sampler.Sample(std::vector<float>{-kInf, 1, -kInf, 2}, greedy, {}, std::vector<TokenId>{3}, {}),
            1);

  const std::vector<float> single{-kInf, -kInf, -3, -kInf};
  const std::vector<float> close{1.0f, 1.001f, -50, 0.5f};
  for (int i = 0; i < 200; ++i) {
    const DrawKey key{7, 0, i};
    for (const SamplingParams& p :
         {SamplingParams{.temperature = 0.7f, .top_p = 0.9f}, SamplingParams{.temperature = 1e-6f},
          SamplingParams{.temperature = 1, .top_k = 3}, SamplingParams{.min_p = 0.5f}}) {
      EXPECT_EQ(sampler.Sample(single, p, {}, {}, key), 2);
    }
    EXPECT_EQ(sampler.Sample(close, {.temperature = 1e-6f}, {}, {}, key), 1);
    EXPECT_EQ(sampler.Sample(close, {.temperature = 1e-6f, .top_p = 0.5f}, {}, {}, key), 1);
  }
  EXPECT_EQ(sampler.Sample(std::vector<float>(4, -kInf), {}, {}, {}, {}), std::nullopt);
  EXPECT_EQ(sampler.Sample(std::vector<float>(4, NAN), greedy, {}, {}, {}), std::nullopt);
}

TEST(SamplerTest, EqualLogits_LowestTokenIsGreedyAndFirst) {
  Sampler sampler;
  const std::vector<float> logits{0, 5, 5, 5};
  EXPECT_EQ(sampler.Sample(logits, {.temperature = 0}, {}, {}, {}), 1);
  EXPECT_EQ(sampler.Sample(logits, {.top_k = 1}, {}, {}, {1, 0, 3}), 1);
  EXPECT_EQ(sampler.Logprobs(logits, 3, 2).top[0].token, 1);
  EXPECT_EQ(sampler.Logprobs(logits, 3, 2).top[1].token, 2);
}

TEST(SamplerTest, Penalties_ByCountAndPresence) {
  Sampler sampler;
  TokenCounts counts;
  for (const TokenId t : {0, 0, 0, 1}) counts.Add(t);
  const std::vector<float> logits{3.0f, 2.0f, 0.6f};
  SamplingParams p{.temperature = 0};
  EXPECT_EQ(sampler.Sample(logits, p, counts, {}, {}), 0);
  p.frequency_penalty = 0.5f;  // 1.5, 1.5, 0.6
  EXPECT_EQ(sampler.Sample(logits, p, counts, {}, {}), 0);
  p.frequency_penalty = 0.6f;  // 1.2, 1.4, 0.6
  EXPECT_EQ(sampler.Sample(logits, p, counts, {}, {}), 1);
  p.presence_penalty = 1;  // 0.2, 0.4, 0.6
  EXPECT_EQ(sampler.Sample(logits, p, counts, {}, {}), 2);
  p = {.temperature = 0, .logit_bias = {{2, 5.0f}}};
  EXPECT_EQ(sampler.Sample(logits, p, {}, {}, {}), 2);
}

TEST(SamplerTest, Logprobs_EqualLogSoftmaxOfTheRawRow) {
  Sampler sampler;
  const std::vector<float> logits = RandomLogits(11, 50);
  double total = 0;
  for (const float x : logits) total += std::exp(double{x});
  const TokenLogprobs result = sampler.Logprobs(logits, 17, 5);
  EXPECT_NEAR(result.logprob, logits[17] - std::log(total), 1e-5);
  std::vector<float> sorted = logits;
  std::ranges::sort(sorted, std::greater());
  ASSERT_EQ(result.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(logits[result.top[i].token], sorted[i]);
    EXPECT_NEAR(result.top[i].logprob, sorted[i] - std::log(total), 1e-5);
  }
  EXPECT_TRUE(sampler.Logprobs(logits, 0, 0).top.empty());
}

TEST(DrawKeyTest, Uniform_DependsOnEachPartAndIsUniform_SMP07) {
  EXPECT_EQ((DrawKey{9, 0, 5}.Uniform()), (DrawKey{9, 0, 5}.Uniform()));
  EXPECT_NE((DrawKey{9, 0, 5}.Uniform()), (DrawKey{9, 1, 5}.Uniform()));
  EXPECT_NE((DrawKey{9, 0, 5}.Uniform()), (DrawKey{9, 0, 6}.Uniform()));
  EXPECT_NE((DrawKey{9, 0, 5}.Uniform()), (DrawKey{10, 0, 5}.Uniform()));
  std::vector<int> bins(20, 0);
  for (int seed = 0; seed < 10; ++seed) {
    for (int choice = 0; choice < 10; ++choice) {
      for (int t = 0; t < 200; ++t) {
        const DrawKey key{static_cast<uint64_t>(seed), choice, t};
        ++bins[static_cast<size_t>(key.Uniform() * 20)];
      }
    }
  }
  for (const int count : bins) EXPECT_NEAR(count, 1000, 150);  // five deviations
}

}  // namespace
}  // namespace kvring::replica
