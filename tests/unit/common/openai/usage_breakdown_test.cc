#include "common/openai/usage_breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvring::openai {
namespace {

using testing::HasSubstr;

TEST(UsageBreakdownTest, CachedInsideTheInput_USG_03) {
  const UsageBreakdown a =
      ReadUsageBreakdown(R"({"prompt_tokens":6074,"completion_tokens":285,"total_tokens":6359,
      "prompt_tokens_details":{"cached_tokens":3456}})")
          .value();
  EXPECT_EQ(a.fresh, 2618);
  EXPECT_EQ(a.read, 3456);
  EXPECT_EQ(a.write, 0);
  EXPECT_EQ(a.output, 285);
  EXPECT_EQ(a.total(), 6359);
  EXPECT_NEAR(a.hit_rate(), 0.569, 5e-4);
}

TEST(UsageBreakdownTest, CachedBesideTheInput_USG_03) {
  const UsageBreakdown b = ReadUsageBreakdown(R"({"input_tokens":88,"cache_read_input_tokens":120269,
      "cache_creation_input_tokens":21002,"output_tokens":4156})")
                               .value();
  EXPECT_EQ(b.fresh, 88);
  EXPECT_EQ(b.read, 120269);
  EXPECT_EQ(b.write, 21002);
  EXPECT_EQ(b.output, 4156);
  EXPECT_EQ(b.total(), 145515);
  // 120,269 of 141,359; the report's 85.1 % is this, rounded.
  EXPECT_NEAR(b.hit_rate(), 0.8508, 5e-5);
}

TEST(UsageBreakdownTest, AbsentAndNullDetails_AreNothingCached_USG_03) {
  for (const char* json :
       {R"({"prompt_tokens":10,"completion_tokens":2})",
        R"({"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":null})",
        R"({"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":null},
                               "cache_read_input_tokens":0})",
        R"({"input_tokens":10,"output_tokens":2})"}) {
    const auto usage = ReadUsageBreakdown(json);
    ASSERT_TRUE(usage.ok()) << json << usage.status();
    EXPECT_EQ(usage->fresh, 10);
    EXPECT_EQ(usage->total(), 12);
    EXPECT_EQ(usage->hit_rate(), 0);
  }
  EXPECT_EQ(ReadUsageBreakdown(R"({"prompt_tokens":0})")->hit_rate(), 0);
}

TEST(UsageBreakdownTest, ResponsesForm_HasTheCachedInside_USG_03) {
  const auto usage = ReadUsageBreakdown(
      R"({"input_tokens":6074,"input_tokens_details":{"cached_tokens":3456},"output_tokens":285})");
  ASSERT_TRUE(usage.ok());
  EXPECT_EQ(usage->fresh, 2618);
  EXPECT_EQ(usage->read, 3456);
  EXPECT_EQ(usage->total(), 6359);
  EXPECT_FALSE(ReadUsageBreakdown(R"({"input_tokens":1,"input_tokens_details":{"cached_tokens":2}})").ok());
}

TEST(UsageBreakdownTest, CacheTold_TellsNothingCachedFromNotSaid_OBS_02) {
  EXPECT_TRUE(
      ReadUsageBreakdown(R"({"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}})")->cache_told);
  EXPECT_TRUE(ReadUsageBreakdown(R"({"input_tokens":9,"cache_read_input_tokens":0})")->cache_told);
  EXPECT_FALSE(ReadUsageBreakdown(R"({"prompt_tokens":9,"prompt_tokens_details":null})")->cache_told);
  EXPECT_FALSE(ReadUsageBreakdown(R"({"input_tokens":9})")->cache_told);
}

// Where the two conventions meet in one object nobody can say what it means: an error, never a doubled total.
TEST(UsageBreakdownTest, MixedOrImpossible_IsAnErrorThatNamesTheField_USG_03) {
  const auto error = [](const char* json) {
    return std::string(ReadUsageBreakdown(json).status().message());
  };
  EXPECT_THAT(error(R"({"prompt_tokens":10,"input_tokens":10})"), HasSubstr("usage.input_tokens"));
  EXPECT_THAT(error(R"({"prompt_tokens":10,"cache_read_input_tokens":8})"),
              HasSubstr("usage.cache_read_input_tokens"));
  EXPECT_THAT(error(R"({"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":11}})"),
              HasSubstr("more than prompt_tokens"));
  EXPECT_THAT(error(R"({"prompt_tokens":-1})"), HasSubstr("usage.prompt_tokens must"));
  EXPECT_THAT(error(R"({"prompt_tokens":1.5})"), HasSubstr("usage.prompt_tokens must"));
  EXPECT_THAT(error(R"({"completion_tokens":1})"), HasSubstr("usage.prompt_tokens is missing"));
  EXPECT_THAT(error("[]"), HasSubstr("JSON object"));
}

}  // namespace
}  // namespace kvring::openai
