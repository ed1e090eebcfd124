#include "common/openai/request_head.h"

#include <gtest/gtest.h>

namespace kvring::openai {
namespace {

RequestHead Head(std::string body) {
  RequestHead head;
  const std::string before = body;
  const auto error = ReadRequestHead(body, head);
  EXPECT_FALSE(error.has_value()) << error->message << " in " << before;
  EXPECT_EQ(body, before);
  return head;
}

ApiError Error(std::string body) {
  RequestHead head;
  auto error = ReadRequestHead(body, head);
  EXPECT_TRUE(error.has_value()) << body;
  return error.value_or(ApiError{});
}

TEST(RequestHead, Chat_ReadsWhatRoutingNeeds) {
  const RequestHead head =
      Head(R"({"messages":[{"content":"S","role":"system"},{"role":"user","content":"hi"}],"model":"m",
      "stream":true,"prompt_cache_key":"k","user":"u","cache_salt":"s","max_tokens":7,"n":2,"x_vendor":{"k":[1,null]},"seed":12345678901234567890})");
  EXPECT_EQ(head.model, "m");
  EXPECT_TRUE(head.stream);
  EXPECT_EQ(head.prompt_cache_key, "k");
  EXPECT_EQ(head.user, "u");
  EXPECT_EQ(head.cache_salt, "s");
  EXPECT_EQ(head.max_tokens, 7);
  EXPECT_EQ(head.n, 2);
  EXPECT_EQ(head.canonical, "system\x1FS\x1Euser\x1Fhi\x1E");
}

TEST(RequestHead, Tools_StandFirst_WhereverTheyAreInTheBody) {
  EXPECT_EQ(Head(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"a":1}]})").canonical,
            "[{\"a\":1}]\x1Euser\x1Fx\x1E");
}

// PRX-21
TEST(RequestHead, ContentForms_PRX_21) {
  const std::string plain = Head(R"({"messages":[{"role":"user","content":"hi"}]})").canonical;
  EXPECT_EQ(Head(R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})").canonical,
            plain);
  EXPECT_EQ(
      Head(
          R"({"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"text":"i","type":"text"}]}]})")
          .canonical,
      plain);
  const auto image = [](const std::string& url) {
    return Head(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" + url +
                R"("}},{"type":"text","text":"hi"}]}]})")
        .canonical;
  };
  EXPECT_NE(image("a"), plain);
  EXPECT_NE(image("a"), image("b"));
  EXPECT_EQ(Head(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]})").canonical,
            "assistant\x1F\x1D[{\"id\":\"1\"}]\x1E");
  Head(R"({"messages":[{"role":"user","content":[{"type":"x","v":1}]}]})");
}

TEST(RequestHead, Prompt_TextIdsAndBatches) {
  EXPECT_EQ(Head(R"({"prompt":"abc"})").canonical, "abc");
  EXPECT_EQ(Head(R"({"prompt":["aaa","bbb"]})").canonical, "aaa");
  EXPECT_EQ(Head(R"({"prompt":[5,6,7]})").token_ids, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(Head(R"({"prompt":[[5,6],[7]]})").token_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(Head(R"({"input":"embed me","model":"e"})").canonical, "");
}

TEST(RequestHead, EqualKeys_TheLastCounts) {
  EXPECT_EQ(Head(R"({"prompt":"a","prompt":"b"})").canonical, "b");
  EXPECT_EQ(Head(R"({"prompt":[1,2],"prompt":[3]})").token_ids, (std::vector<TokenId>{3}));
  EXPECT_EQ(Head(R"({"messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]})")
                .canonical,
            "user\x1F\x62\x1E");
}

TEST(RequestHead, Escapes_AreUndone) {
  EXPECT_EQ(Head(R"({"\u006dodel":"m\n","prompt":"\ud83d\ude00"})").model, "m\n");
  EXPECT_EQ(Head(R"({"prompt":"\ud83d\ude00"})").canonical, "\U0001F600");
}

// TOK-10: 400 that names the field, before anything is sent.
TEST(RequestHead, LoneSurrogatesAndBadUtf8_Are400_TOK_10) {
  for (const char* text : {R"(emoji \ud83d)", R"(x \ude00 y)", R"(\uD800\uD800)"}) {
    const ApiError error =
        Error(std::string(R"({"messages":[{"role":"user","content":")") + text + R"("}]})");
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.param, "messages[0].content") << text;
  }
  EXPECT_EQ(Error("{\"messages\":[{\"role\":\"user\",\"content\":\"\xED\xA0\x80\"}]}").http_status, 400);
  EXPECT_EQ(Error("{\"prompt\":\"abc\xC3\"}").http_status, 400);
  const ApiError tool = Error(
      R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"arguments":"\ud83d"}}]}]})");
  EXPECT_EQ(tool.param, "messages[0].tool_calls");
}

TEST(RequestHead, BrokenBodies_Are400) {
  for (const char* body : {"", "[]", "{", "nope", R"({"messages":[{"role":"user")", R"({"messages":{}})",
                           R"({"messages":[1]})", R"({"messages":[{"content":"x"}]})"}) {
    EXPECT_EQ(Error(body).http_status, 400) << body;
  }
}

TEST(RequestHead, WrongTypesOfOtherFields_AreLeftToTheUpstream) {
  const RequestHead head = Head(R"({"model":5,"stream":"yes","n":1.5,"max_tokens":"5","prompt":"x"})");
  EXPECT_EQ(head.model, "");
  EXPECT_FALSE(head.stream);
  EXPECT_EQ(head.n, 1);
  EXPECT_EQ(head.max_tokens, 0);
  EXPECT_EQ(head.canonical, "x");
}

TEST(RequestHead, SystemBesideTheMessages_IsARecordOfItsOwn) {
  const RequestHead head = Head(
      R"({"messages":[{"role":"user","content":"Hi"}],"tools":[],"system":[{"type":"text","text":"Be "},{"type":"text","text":"brief."}]})");
  EXPECT_EQ(head.system,
            "system\x1F"
            "Be brief.\x1E");
  EXPECT_EQ(head.canonical,
            "[]\x1E"
            "user\x1FHi\x1E");
  EXPECT_EQ(head.messages_begin, 3u);
  EXPECT_EQ(Head(R"({"prompt":"x","system":5})").system, "");
  EXPECT_EQ(Error(R"({"system":[1]})").param, "system[0]");
}

}  // namespace
}  // namespace kvring::openai
