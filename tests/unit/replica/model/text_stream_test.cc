#include "replica/model/text_stream.h"

#include <gtest/gtest.h>

namespace kvring::replica {
namespace {

struct Result {
  std::vector<std::string> deltas;
  std::string text;
  bool stopped = false;
};

Result Stream(std::vector<std::string> stops, const std::vector<std::string>& tokens) {
  TextStream stream(std::move(stops));
  Result result;
  for (const std::string& token : tokens) {
    const TextStream::Piece piece = stream.Push(token);
    result.deltas.push_back(piece.text);
    result.text += piece.text;
    if (piece.stopped) {
      result.stopped = true;
      return result;
    }
  }
  result.text += stream.Finish();
  return result;
}

// SMP-01
TEST(TextStream, StopStringsOverTokens_SMP_01) {
  const Result spread = Stream({"DEFGHIJ"}, {"ABC", "DEF", "G", "HI", "J", "K"});
  EXPECT_EQ(spread.deltas, (std::vector<std::string>{"ABC", "", "", "", ""}));
  EXPECT_TRUE(spread.stopped);
  const Result start = Stream({"beta gamma"}, {"beta", " gam", "ma"});
  EXPECT_EQ(start.text, "");
  EXPECT_TRUE(start.stopped);
  const Result first = Stream({"b", "abc"}, {"a", "b", "c"});
  EXPECT_EQ(first.text, "a");
  EXPECT_TRUE(first.stopped);
}

TEST(TextStream, HeldText_ComesWhenTheStopFails) {
  const Result result = Stream({"abcd"}, {"xab", "c", "e", "ab"});
  EXPECT_EQ(result.deltas, (std::vector<std::string>{"x", "", "abce", ""}));
  EXPECT_EQ(result.text, "xabceab");
  EXPECT_FALSE(result.stopped);
}

TEST(TextStream, LongestOfStopsThatEndTogether) { EXPECT_EQ(Stream({"b", "ab"}, {"xab"}).text, "x"); }

TEST(TextStream, OverlappingBeginnings_AreHeldRight) {
  const Result result = Stream({"aab"}, {"a", "a", "a", "b", "c"});
  EXPECT_EQ(result.text, "a");
  EXPECT_TRUE(result.stopped);
}

// Stream and whole text are the same for every cut into tokens, stops and split characters included.
TEST(TextStream, EveryCut_SameText) {
  const std::string text = "one\U0001F600two STOP three";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      const Result result = Stream({"STOP"}, {text.substr(0, a), text.substr(a, b - a), text.substr(b)});
      EXPECT_EQ(result.text, "one\U0001F600two ");
      EXPECT_TRUE(result.stopped);
    }
  }
}

TEST(TextStream, IncompleteCharacterAtTheEnd_IsReplacedOnce_TOK_01) {
  EXPECT_EQ(Stream({}, {"ok", "\xF0\x9F"}).text, "ok\uFFFD");
}

}  // namespace
}  // namespace kvring::replica
