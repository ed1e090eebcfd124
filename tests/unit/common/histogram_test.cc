#include "common/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/random.h"

namespace kvring {
namespace {

TEST(Histogram, Empty_IsZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
}

TEST(Histogram, SmallValues_AreExact) {
  Histogram histogram;
  for (int i = 0; i < 32; ++i) histogram.Record(i);
  EXPECT_EQ(histogram.Quantile(0.5), 15);
  EXPECT_EQ(histogram.Quantile(1), 31);
  EXPECT_DOUBLE_EQ(histogram.mean(), 15.5);
}

TEST(Histogram, Quantiles_WithinABucketOfSorting) {
  Random random(11);
  Histogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(static_cast<int64_t>(random.Exponential(1e7)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double q : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const auto exact = static_cast<double>(values[static_cast<size_t>(q * values.size()) - 1]);
    EXPECT_GE(histogram.Quantile(q), exact) << q;
    EXPECT_LE(histogram.Quantile(q), exact * 1.033) << q;
  }
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(Histogram, Merge_EqualsRecordingBoth) {
  Histogram a, b, both;
  for (int i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? a : b).Record(i * i);
    both.Record(i * i);
  }
  a.Merge(b);
  EXPECT_EQ(a.count(), both.count());
  for (double q : {0.1, 0.5, 0.99}) EXPECT_EQ(a.Quantile(q), both.Quantile(q));
}

TEST(Histogram, ExtremeValues_StayInside) {
  Histogram histogram;
  histogram.Record(-5);
  histogram.Record(INT64_MAX);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.Quantile(1), INT64_MAX);
}

}  // namespace
}  // namespace kvring
