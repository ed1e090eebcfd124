#include "common/json_text.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace kvring {
namespace {

TEST(JsonText, String_ReadsBackEqual_ForEveryByte) {
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "\u00E9\u65E5\U0001F600\u2028";
  std::string out;
  AppendJsonString(out, text);
  EXPECT_EQ(boost::json::value_to<std::string>(boost::json::parse(out)), text);
}

TEST(JsonText, Number_NotFiniteIsNull) {
  std::string out;
  AppendJsonNumber(out, 0.1);
  out += ' ';
  AppendJsonNumber(out, -INFINITY);
  EXPECT_EQ(out, "0.1 null");
}

// TOK-10
TEST(JsonText, LoneSurrogates_TOK_10) {
  for (const char* bad : {R"("\ud83d")", R"("x \ude00 y")", R"("\uD800\uD800")", R"("\ud83d\u0041")",
                          R"("\ud83d x")", R"("\ud83d\n")"}) {
    EXPECT_TRUE(HasLoneSurrogate(bad)) << bad;
  }
  for (const char* good : {R"("\ud83d\ude00")", R"("\\ud83d")", R"("\u0041")", R"("plain")", R"("\\\\u")"}) {
    EXPECT_FALSE(HasLoneSurrogate(good)) << good;
  }
}

}  // namespace
}  // namespace kvring
