// RMSNorm, LayerNorm, SwiGLU, GELU, RoPE and activation blocks: every instruction set against the formula in
// double.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/activations.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/unit/kernels/random_floats.h"

namespace kvring::kernels {
namespace {

class ElementwiseTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(AllIsas, ElementwiseTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(ElementwiseTest, RmsNorm_MatchesTheFormula) {
  Random random(1);
  for (const int64_t n : {1, 15, 16, 576, 577}) {
    const std::vector<float> x = RandomFloats(random, static_cast<size_t>(n), 3);
    const std::vector<float> weight = RandomFloats(random, static_cast<size_t>(n));
    std::vector<float> y(static_cast<size_t>(n));
    RmsNorm(GetParam(), x.data(), n, {weight.data(), 1e-5F}, y.data());
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * weight[i];
      ASSERT_NEAR(y[i], expected, 2e-6 * std::fabs(expected) + 1e-7) << n << " " << i;
    }
  }
}

TEST_P(ElementwiseTest, SwiGlu_MatchesTheFormulaEvenFarOut) {
  Random random(2);
  std::vector<float> gate = RandomFloats(random, 1536, 8);
  for (int i = 0; i < 64; ++i) gate[static_cast<size_t>(i)] = static_cast<float>(i - 32) * 10.0F;
  const std::vector<float> up = RandomFloats(random, 1536);
  std::vector<float> y(1536);
  SwiGlu(GetParam(), gate.data(), up.data(), 1536, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double expected = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    ASSERT_NEAR(y[i], expected, 2e-6 * std::fabs(expected) + 1e-30) << gate[i];
  }
}

TEST_P(ElementwiseTest, LayerNorm_MatchesTheFormulaWithAndWithoutBias) {
  Random random(6);
  for (const int64_t n : {2, 15, 16, 768, 769}) {
    std::vector<float> x = RandomFloats(random, static_cast<size_t>(n), 3);
    for (float& v : x) v += 2;
    const std::vector<float> weight = RandomFloats(random, static_cast<size_t>(n));
    const std::vector<float> bias = RandomFloats(random, static_cast<size_t>(n));
    double mean = 0;
    for (const float v : x) mean += v / static_cast<double>(n);
    double variance = 0;
    for (const float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      std::vector<float> y(static_cast<size_t>(n));
      LayerNorm(GetParam(), x.data(), n, {weight.data(), b, 1e-5F}, y.data());
      for (size_t i = 0; i < y.size(); ++i) {
        const double added = b != nullptr ? b[i] : 0;
        const double expected = (x[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + added;
        ASSERT_NEAR(y[i], expected, 5e-6) << n << " " << i;
      }
    }
  }
}

TEST_P(ElementwiseTest, Gelu_MatchesTheTanhFormEvenFarOut) {
  Random random(7);
  std::vector<float> x = RandomFloats(random, 1536, 4);
  for (int i = 0; i < 64; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 32);
  std::vector<float> y(1536);
  Gelu(GetParam(), x.data(), 1536, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double v = x[i];
    const double expected = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    ASSERT_NEAR(y[i], expected, 1e-6 + 2e-6 * std::fabs(expected)) << v;
  }
}

TEST_P(ElementwiseTest, QuantizeRow_EqualsThePlainBlocks) {
  Random random(3);
  std::vector<float> x = RandomFloats(random, 320, 2);
  std::fill_n(x.begin() + 32, 32, 0.0F);
  std::vector<int8_t> q(320);
  std::vector<int8_t> plain_q(320);
  std::vector<float> scale(10), offset(10), plain_scale(10), plain_offset(10);
  std::vector<int32_t> sum(10), plain_sum(10);
  QuantizeRow(GetParam(), x.data(), 320, {q.data(), scale.data(), offset.data(), sum.data()});
  QuantizeRowPlain(x.data(), 320,
                   {plain_q.data(), plain_scale.data(), plain_offset.data(), plain_sum.data()});
  EXPECT_EQ(q, plain_q);
  EXPECT_EQ(scale, plain_scale);
  EXPECT_EQ(offset, plain_offset);
  EXPECT_EQ(sum, plain_sum);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(scale[i / 32] * static_cast<float>(q[i]), x[i], scale[i / 32] * 0.5001F);
  }
}

TEST_P(ElementwiseTest, Rope_BothPairings_TurnByPositionTimesFrequency) {
  for (const int dim : {8, 48, 64}) {
    RopeTable table(RopeFrequencies(dim, 10000.0));
    table.GrowTo(3);
    table.GrowTo(50);
    Random random(4);
    const std::vector<float> x = RandomFloats(random, 3 * static_cast<size_t>(dim));
    for (const RopePairs pairs : {RopePairs::kAdjacent, RopePairs::kHalves}) {
      std::vector<float> y = x;
      Rope(GetParam(), pairs, table.row(37), dim, 3, y.data());
      std::vector<float> plain = x;
      RopePlain(pairs, table.row(37), dim, 3, plain.data());
      ASSERT_EQ(y, plain) << "dim " << dim;
      for (int head = 0; head < 3; ++head) {
        for (int i = 0; i < dim / 2; ++i) {
          const auto first = static_cast<size_t>(head * dim + (pairs == RopePairs::kAdjacent ? 2 * i : i));
          const size_t second = first + (pairs == RopePairs::kAdjacent ? 1 : static_cast<size_t>(dim / 2));
          const double angle = 37.0 * std::pow(10000.0, -2.0 * i / dim);
          ASSERT_NEAR(y[first], x[first] * std::cos(angle) - x[second] * std::sin(angle), 1e-6);
          ASSERT_NEAR(y[second], x[first] * std::sin(angle) + x[second] * std::cos(angle), 1e-6);
        }
      }
    }
  }
}

TEST(RopeTest, Magnitude_ScalesTheTurnedValues) {
  RopeTable plain({0.5, 0.25});
  RopeTable louder({0.5, 0.25}, 1.5);
  plain.GrowTo(9);
  louder.GrowTo(9);
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(louder.row(8)[i], 1.5F * plain.row(8)[i]);
}

}  // namespace
}  // namespace kvring::kernels
