#include "common/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvring {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, Exposition_HasHelpTypeAndEscapedLabels) {
  MetricRegistry registry;
  registry.GetCounter("kvring_requests_total", "Requests.", {{"model", "a\"b\\c\nd"}}).Add(3);
  registry.GetGauge("kvring_up", "Up.").Set(0.5);
  EXPECT_EQ(registry.Expose(),
            "# HELP kvring_requests_total Requests.\n# TYPE kvring_requests_total counter\n"
            "kvring_requests_total{model=\"a\\\"b\\\\c\\nd\"} 3\n"
            "# HELP kvring_up Up.\n# TYPE kvring_up gauge\nkvring_up 0.5\n");
}

TEST(Metrics, Histogram_BucketsAreCumulative) {
  MetricRegistry registry;
  BucketHistogram& seconds = registry.GetHistogram("ttft", "h", {1, 2});
  for (double value : {0.5, 1.0, 1.5, 9.0}) seconds.Observe(value);
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("ttft_bucket{le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ttft_bucket{le=\"2\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("ttft_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("ttft_sum 12\n"));
  EXPECT_THAT(text, HasSubstr("ttft_count 4\n"));
}

TEST(Metrics, SameLabels_SameMetric) {
  MetricRegistry registry;
  registry.GetCounter("c", "h", {{"a", "1"}}).Add();
  registry.GetCounter("c", "h", {{"a", "1"}}).Add();
  EXPECT_EQ(registry.GetCounter("c", "h", {{"a", "1"}}).value(), 2u);
  EXPECT_EQ(registry.GetCounter("c", "h", {{"a", "2"}}).value(), 0u);
}

TEST(Metrics, Remove_DropsTheSeriesOfOneReplica) {
  MetricRegistry registry;
  registry.GetGauge("load", "h", {{"replica", "r1"}}).Set(1);
  registry.GetGauge("load", "h", {{"replica", "r2"}}).Set(2);
  registry.Remove("replica", "r1");
  EXPECT_THAT(registry.Expose(), HasSubstr("r2"));
  EXPECT_THAT(registry.Expose(), Not(HasSubstr("r1")));
}

TEST(MetricsDeathTest, TwoTypesOfOneName_IsAProgrammersError) {
  MetricRegistry registry;
  registry.GetCounter("x", "h");
  EXPECT_DEATH(registry.GetGauge("x", "h"), "check failed");
}

}  // namespace
}  // namespace kvring
