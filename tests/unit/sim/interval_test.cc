#include "sim/interval.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvring::sim {
namespace {

// By hand: mean 3, s = sqrt(2.5), t(4) = 2.776: 2.776 · 1.5811 / sqrt(5) = 1.963.
TEST(Interval, FiveFigures_ByHand) {
  const std::vector<double> figures{1, 2, 3, 4, 5};
  const Interval interval = ConfidenceInterval(figures);
  EXPECT_DOUBLE_EQ(interval.mean, 3);
  EXPECT_NEAR(interval.half_width, 1.963, 0.001);
}

TEST(Interval, OneFigure_SaysNothingOfSpread) {
  const std::vector<double> figures{4};
  EXPECT_EQ(ConfidenceInterval(figures).mean, 4);
  EXPECT_EQ(ConfidenceInterval(figures).half_width, 0);
}

// t(30) = 2.042, beyond the table.
TEST(Interval, ManyFigures_NearNormal) {
  std::vector<double> figures;
  for (int i = 0; i < 31; ++i) figures.push_back(i % 2);
  const double s = 0.50800;  // 16 zeros, 15 ones
  EXPECT_NEAR(ConfidenceInterval(figures).half_width, 2.042 * s / 5.5678, 0.002);
}

}  // namespace
}  // namespace kvring::sim
