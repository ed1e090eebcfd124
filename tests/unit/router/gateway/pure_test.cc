// The gateway's pure parts: usage in answers, splicing, session rules, model lists.
#include <gtest/gtest.h>

#include "common/random.h"
#include "router/gateway/answer_scanner.h"
#include "router/gateway/body_splice.h"
#include "router/gateway/forward_head.h"

namespace kvring::router {
namespace {

TEST(FindUsage, OnlyARealUsageObjectCounts_TheLastOne) {
  const auto usage = FindUsage(
      R"({"usage":null,"x":"say \"usage\": {\"prompt_tokens\": 9}","usage" : {"completion_tokens":2, "prompt_tokens" : 11,
      "prompt_tokens_details":{"cached_tokens":4},"s":"}{"}})");
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->prompt_tokens, 11);
  EXPECT_EQ(usage->completion_tokens, 2);
  EXPECT_EQ(usage->cached_tokens, 4);
  EXPECT_FALSE(FindUsage(R"({"usage":null})"));
  EXPECT_FALSE(FindUsage(R"({"text":"\"usage\":{\"prompt_tokens\":1}"})"));
  EXPECT_FALSE(FindUsage(R"({"usage":{"prompt_tokens":99999999999}})"));
  EXPECT_FALSE(FindUsage(R"({"usage":{"prompt_tokens":)"));
  EXPECT_EQ(FindUsage(R"({"usage":{"prompt_tokens":1,"prompt_tokens_details":null}})")->cached_tokens,
            std::nullopt);
}

TEST(AnswerScanner, LongJsonAnswer_UsageAtTheEndIsFound_InAnyPieces) {
  const std::string json = "{\"choices\":[{\"text\":\"" + std::string(200'000, 'x') +
                           "\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";
  Random random(3);
  for (int run = 0; run < 20; ++run) {
    AnswerScanner scanner;
    scanner.Begin(false);
    for (size_t at = 0; at < json.size();) {
      const size_t n = 1 + random.Below(20'000);
      const std::string_view piece[] = {std::string_view(json).substr(at, n)};
      scanner.Feed(piece);
      at += n;
    }
    ASSERT_TRUE(scanner.usage());
    EXPECT_EQ(scanner.usage()->completion_tokens, 4);
  }
}

TEST(AnswerScanner, GRP02_ErrorInsideAnOkStream_IsSeen) {
  AnswerScanner scanner;
  scanner.Begin(true);
  const std::string_view data[] = {"data: {\"choices\":[]}\n\ndata: {\"error\":{\"code\":500}}\n\n"};
  scanner.Feed(data);
  EXPECT_TRUE(scanner.error_seen());
  EXPECT_FALSE(scanner.done_seen());
  EXPECT_EQ(scanner.events(), 2u);
}

TEST(AnswerScanner, GeneratedText_OfStreamsAndWholeAnswers_InAnyPieces) {
  const std::string stream =
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\n\\ud83d\\ude00\"}}]}\n\n"
      "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null},\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
  const std::string whole =
      R"({"choices":[{"index":0,"message":{"role":"assistant","content":"a\n😀","tool_calls":null}}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":2}})";
  for (const bool is_stream : {true, false}) {
    const std::string& text = is_stream ? stream : whole;
    for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
      AnswerScanner scanner;
      scanner.Begin(is_stream);
      scanner.CollectText("assistant\x1F");
      for (size_t at = 0; at < text.size(); at += step) {
        const std::string_view piece[] = {std::string_view(text).substr(at, step)};
        scanner.Feed(piece);
      }
      EXPECT_EQ(scanner.usage()->generated_bytes,
                "assistant\x1F"
                "a\n😀")
          << step;
    }
  }
}

TEST(AnswerScanner, GeneratedText_WithToolCalls_TooLong_OrNone_IsNotTaken) {
  const auto generated = [](const std::string& json) {
    AnswerScanner scanner;
    scanner.Begin(false);
    scanner.CollectText("assistant\x1F");
    const std::string_view piece[] = {json};
    scanner.Feed(piece);
    return std::string(scanner.generated());
  };
  EXPECT_EQ(generated(R"({"choices":[{"index":0,"message":{"content":"a","tool_calls":[{"id":"x"}]}}]})"),
            "");
  EXPECT_EQ(generated(R"({"choices":[{"index":0,"message":{"content":null}}]})"), "");
  EXPECT_EQ(generated(R"({"choices":[{"index":0,"message":{"content":[1]}}]})"), "");
  EXPECT_EQ(generated(R"({"choices":7})"), "");
  EXPECT_EQ(generated("no JSON"), "");
  EXPECT_EQ(generated(R"({"choices":[{"text":")" + std::string(300 << 10, 'x') + R"("}]})"), "");
  EXPECT_EQ(generated(R"({"choices":[{"text":"t"}]})"), "assistant\x1Ft");
}

TEST(SpliceString, ChangesTheTopLevelValueOnly) {
  std::string json = R"( { "a" : {"model":"x"}, "b":["model","y"], "model"  :  "old\"\\" , "n":1e5 } )";
  ASSERT_TRUE(SpliceString(json, "model", "n\"ew"));
  EXPECT_EQ(json, R"( { "a" : {"model":"x"}, "b":["model","y"], "model"  :  "n\"ew" , "n":1e5 } )");
  std::string twice = R"({"model":"a","model":"b"})";
  ASSERT_TRUE(SpliceString(twice, "model", "c"));
  EXPECT_EQ(twice, R"({"model":"a","model":"c"})");  // the last one is what readers take
  for (std::string text : {"{}", "[]", "", "{\"a\":1}", "{\"mode", "{\"model\":"})
    EXPECT_FALSE(SpliceString(text, "model", "c")) << text;
}

TEST(SetString, AddsTheFirstMember_WhereItIsAbsent) {
  std::string empty = " { } ", other = R"({"a":{"k":1}})", there = R"({"k":null,"k":"x"})";
  SetString(empty, "k", "v\"");
  SetString(other, "k", "v");
  SetString(there, "k", "v");
  EXPECT_EQ(empty, R"( {"k":"v\"" } )");
  EXPECT_EQ(other, R"({"k":"v","a":{"k":1}})");
  EXPECT_EQ(there, R"({"k":null,"k":"v"})");
}

TEST(FindTopLevelValue, RandomTextNeverRunsAway) {
  Random random(5);
  for (int i = 0; i < 50'000; ++i) {
    std::string text = "{";
    for (uint64_t n = random.Below(24); n > 0; --n)
      text += std::string_view("{}[]\",:\\am 1")[random.Below(12)];
    if (const auto span = FindTopLevelValue(text, "a")) {
      EXPECT_LE(span->offset + span->size, text.size());
    }
  }
}

TEST(RequestName, OnlyShortVisibleTextIsUsed) {
  EXPECT_TRUE(IsUsableRequestName("abc-123"));
  EXPECT_TRUE(IsUsableRequestName(std::string(128, 'a')));
  for (const std::string& name : {std::string(), std::string(129, 'a'), std::string("a b"),
                                  std::string("a\tb"), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(IsUsableRequestName(name)) << name;
  }
}

}  // namespace
}  // namespace kvring::router
