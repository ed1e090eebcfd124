#include "common/json_normal.h"

#include <gtest/gtest.h>

namespace kvring {
namespace {

TEST(JsonNormal, EqualValues_HaveOneForm) {
  const auto form = NormalJson(R"({"b": [1, 2.5, "x\n"], "a": {"d": null, "c": true}})");
  ASSERT_TRUE(form);
  EXPECT_EQ(form, NormalJson("{\"a\":{\"c\":true,\"d\":null},\n\"b\":[1,2.5,\"x\\u000a\"]}"));
  EXPECT_NE(form, NormalJson(R"({"b": [2.5, 1, "x\n"], "a": {"d": null, "c": true}})"));
  EXPECT_NE(NormalJson(R"(["1"])"), NormalJson("[1]"));
}

TEST(JsonNormal, NoJson_HasNone) {
  for (const char* text : {"", "{", "{\"a\":1} x", "plain"}) EXPECT_FALSE(NormalJson(text)) << text;
  EXPECT_FALSE(NormalJsonElements("{}"));
}

TEST(JsonNormal, Elements_StandInOrder) {
  EXPECT_EQ(NormalJsonElements(R"([{"b":1,"a":2}, 3])"),
            (std::vector<std::string>{R"({"a":2,"b":1,})", "3"}));
}

TEST(JsonNormal, WithoutSpace_KeepsStringsAndOrder) {
  EXPECT_EQ(WithoutJsonSpace("{ \"b\" : \"x \\\" y\",\n\"a\":1 }"), "{\"b\":\"x \\\" y\",\"a\":1}");
}

TEST(JsonNormal, End_IsBehindTheMatchingBracket) {
  const std::string_view text = R"(x {"a":"}\"","b":[{}]} y)";
  EXPECT_EQ(JsonEnd(text, 2), text.size() - 2);
  EXPECT_EQ(JsonEnd("[1,2", 0), std::string_view::npos);
}

}  // namespace
}  // namespace kvring
