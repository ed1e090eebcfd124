#include "common/openai/response_writer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace kvring::openai {
namespace {

namespace js = boost::json;

const AnswerIdentity kChat{Route::kChat, "chatcmpl-1", 1700000000, "m"};
const AnswerIdentity kText{Route::kCompletions, "cmpl-1", 1700000000, "m"};

// The JSON of each `data:` event; "[DONE]" as a string.
std::vector<js::value> Events(const std::string& sse) {
  std::vector<js::value> events;
  for (size_t at = 0; at < sse.size();) {
    const size_t end = sse.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    EXPECT_EQ(sse.substr(at, 6), "data: ");
    const std::string data = sse.substr(at + 6, end - at - 6);
    events.push_back(data == "[DONE]" ? js::value("[DONE]") : js::parse(data));
    at = end + 2;
  }
  return events;
}

// SMP-11, PRX-05 form 1: index in every chunk, role once per choice, one usage chunk with choices [], [DONE]
// last.
TEST(StreamWriter, Chat_ChunksOfSeveralChoices_SMP_11_PRX_05) {
  StreamWriter writer(kChat, /*include_usage=*/true, /*logprobs=*/false);
  std::string out;
  writer.Delta(out, {0, "a", "", {}});
  writer.Delta(out, {1, "b\n", "", {}});
  writer.Delta(out, {0, "", "stop", {}});
  writer.Finish(out, {287, 8, 256});
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(events[1].at("choices").at(0).at("index"), 1);
  EXPECT_EQ(events[1].at("choices").at(0).at("delta").at("content"), "b\n");
  EXPECT_FALSE(events[2].at("choices").at(0).at("delta").as_object().contains("role"));
  EXPECT_EQ(events[2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(events[2].at("usage").is_null());
  EXPECT_TRUE(events[3].at("choices").as_array().empty());
  EXPECT_EQ(events[3].at("usage").at("prompt_tokens_details").at("cached_tokens"), 256);
  EXPECT_EQ(events[3].at("usage").at("total_tokens"), 295);
  EXPECT_EQ(events[4], "[DONE]");
}

TEST(StreamWriter, Text_HasTheOlderForm) {
  StreamWriter writer(kText, /*include_usage=*/false, /*logprobs=*/false);
  std::string out;
  writer.Delta(out, {0, "x", "length", {}});
  writer.Finish(out, {1, 1, 0});
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("object"), "text_completion");
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "x");
  EXPECT_FALSE(events[0].as_object().contains("usage"));
}

TEST(AnswerWriter, EqualsTheStreamedText_AndUsage) {
  AnswerWriter writer(kChat, /*logprobs=*/false);
  writer.Delta({1, "B", "length", {}});
  writer.Delta({0, "he", "", {}});
  writer.Delta({0, "llo", "stop", {}});
  const js::value answer = js::parse(writer.Finish({5, 3, 0}));
  EXPECT_EQ(answer.at("object"), "chat.completion");
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), "hello");
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(answer.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST(AnswerWriter, Logprobs_PartOfACharacterKeepsItsBytes) {
  const std::vector<TokenLogprob> tokens = {{"\xF0\x9F", -0.5, {{"\xF0\x9F", -0.5}, {"a", -2}}}};
  AnswerWriter chat(kChat, /*logprobs=*/true);
  chat.Delta({0, "", "length", tokens});
  const js::value token = js::parse(chat.Finish({})).at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(token.at("token"), "\uFFFD");
  EXPECT_EQ(token.at("bytes").at(0), 0xF0);
  EXPECT_EQ(token.at("top_logprobs").at(1).at("logprob"), -2);
  AnswerWriter text(kText, /*logprobs=*/true);
  text.Delta({0, "ab", "length", std::vector<TokenLogprob>{{"a", -1, {{"a", -1}}}, {"b", -2, {{"b", -2}}}}});
  const js::value logprobs = js::parse(text.Finish({})).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").at(1), "b");
  EXPECT_EQ(logprobs.at("text_offset").at(1), 1);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).at("a"), -1);
}

TEST(StreamWriter, Error_IsOneEventWithoutDone) {
  std::string out;
  StreamWriter::Error(out, InternalError());
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("error").at("type"), "server_error");
}

TEST(ModelList, SaysWhatAModelCanDo) {
  const std::vector<ModelEntry> models = {{"m", 8192, true}, {"base", 0, false}};
  const js::value list = js::parse(ModelList(models, 1));
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 8192);
  EXPECT_EQ(list.at("data").at(1).at("capabilities").as_array().size(), 1u);
}

}  // namespace
}  // namespace kvring::openai
