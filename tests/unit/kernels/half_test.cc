#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/random.h"

namespace kvring::kernels {
namespace {

TEST(HalfTest, F16_EveryBitPattern_MatchesTheFormulaAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 1023);
    const float sign = bits & 0x8000 ? -1.0F : 1.0F;
    const float value = F16ToFloat(static_cast<F16Bits>(bits));
    if (exponent == 31) {
      EXPECT_TRUE(mantissa == 0 ? std::isinf(value) : std::isnan(value)) << bits;
      continue;
    }
    const float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                         : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    ASSERT_EQ(value, sign * expected) << bits;
    ASSERT_EQ(FloatToF16(value), bits);
  }
}

// Nearest, ties to even: checked against the two neighbours.
TEST(HalfTest, FloatToF16_RandomFloats_RoundToTheNearest) {
  Random random(3);
  for (int i = 0; i < 200000; ++i) {
    const float value =
        static_cast<float>(std::ldexp(random.Uniform() - 0.5, static_cast<int>(random.Below(42)) - 25));
    const F16Bits bits = FloatToF16(value);
    if ((bits & 0x7fff) == 0x7c00) {
      ASSERT_GE(std::fabs(value), 65520.0F);
      continue;
    }
    const float error = std::fabs(F16ToFloat(bits) - value);
    for (const int step : {-1, 1}) {
      if ((bits & 0x7fff) == 0 && step < 0) continue;
      const float other = std::fabs(F16ToFloat(static_cast<F16Bits>(bits + step)) - value);
      ASSERT_LE(error, other) << value;
      ASSERT_TRUE(error < other || bits % 2 == 0) << value;
    }
  }
}

TEST(HalfTest, Bf16_RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(Bf16ToFloat(FloatToBf16(1.0F)), 1.0F);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // a tie goes to the even side
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_TRUE(std::isinf(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::infinity()))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001U)))));
}

}  // namespace
}  // namespace kvring::kernels
