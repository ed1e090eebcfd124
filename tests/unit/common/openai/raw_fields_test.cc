#include "common/openai/raw_fields.h"

#include <gtest/gtest.h>

namespace kvring::openai {
namespace {

TEST(RawFieldsTest, Values_StandAsTheyWereWritten) {
  auto fields = RawFields::Read(R"({"a" : { "y":1, "x" : [ 2 ]} ,"b": "t\"", "c":null, "\u0064":-1.50 })");
  ASSERT_TRUE(fields.ok());
  const RawFields moved = *std::move(fields);
  EXPECT_EQ(moved.Raw("a"), R"({ "y":1, "x" : [ 2 ]})");
  EXPECT_EQ(moved.Raw("b"), R"("t\"")");
  EXPECT_EQ(moved.Raw("c"), "");
  EXPECT_EQ(moved.FirstOf({"none", "c", "d"}), "-1.50");
}

TEST(RawFieldsTest, NoObject_IsAnError) {
  for (const char* text : {"", "[1]", "{\"a\":", "{} {}", "plain"})
    EXPECT_FALSE(RawFields::Read(text).ok()) << text;
}

}  // namespace
}  // namespace kvring::openai
