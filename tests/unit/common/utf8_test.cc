#include "common/utf8.h"

#include <gtest/gtest.h>

namespace kvring {
namespace {

std::string Valid(std::string_view text) {
  std::string out;
  AppendValidUtf8(out, text);
  return out;
}

// TOK-01: characters cut over pieces.
TEST(Utf8Assembler, CutCharacters_ComeWhole_TOK_01) {
  Utf8Assembler emoji;
  EXPECT_EQ(emoji.Push("\xF0\x9F"), "");
  EXPECT_EQ(emoji.Push("\x98\x80"), "\U0001F600");
  Utf8Assembler day;
  EXPECT_EQ(day.Push("\xE6"), "");
  EXPECT_EQ(day.Push("\x97"), "");
  EXPECT_EQ(day.Push("\xA5"), "\u65E5");
  Utf8Assembler mixed;
  EXPECT_EQ(mixed.Push("A\xF0"), "A");
  EXPECT_EQ(mixed.Push("\x9F\x92\x96"
                       "B"),
            "\U0001F496"
            "B");
  Utf8Assembler ended;
  EXPECT_EQ(ended.Push("\xF0\x9F"), "");
  EXPECT_EQ(ended.Finish(), "\uFFFD");
  EXPECT_EQ(ended.Finish(), "");
}

// TOK-02: a cut tail is not a bad byte.
TEST(Utf8Assembler, BadBytes_AreReplacedAtOnce_TOK_02) {
  Utf8Assembler bad;
  EXPECT_EQ(bad.Push("ab"), "ab");
  EXPECT_EQ(bad.Push("\xC3"), "");
  EXPECT_EQ(bad.Push(" c"), "\uFFFD c");
  Utf8Assembler good;
  EXPECT_EQ(good.Push("\xC3"), "");
  EXPECT_EQ(good.Push("\xA9"), "\u00E9");
}

// GRP-10: every delta is valid UTF-8 and their concatenation is exact, for every cut.
TEST(Utf8Assembler, EveryCut_GivesTheSameText_GRP_10) {
  const std::string text = "A\U0001F600\u65E5\u00E9!\u2028z";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      Utf8Assembler assembler;
      std::string joined;
      for (std::string piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        const std::string delta = assembler.Push(piece);
        EXPECT_TRUE(IsValidUtf8(delta));
        joined += delta;
      }
      EXPECT_EQ(joined + assembler.Finish(), text);
    }
  }
}

// Unicode 15 table 3-8 and its neighbours: maximal ill-formed parts.
TEST(Utf8, Replacement_FollowsMaximalSubparts) {
  EXPECT_EQ(Valid("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(Valid("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Valid("\xF0\x80\x80\x41"), "\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(Valid("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(Valid("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Valid("\xF4\x8F\xBF\xBF"), "\U0010FFFF");
}

TEST(Utf8, IncompleteTail_OnlyCountsBeginnings) {
  EXPECT_EQ(IncompleteUtf8Tail(""), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(IncompleteUtf8Tail("\xC3\xA9"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xFF"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xED\xA0"), 0u);
}

}  // namespace
}  // namespace kvring
