#include "common/openai/generation_request.h"

#include <gtest/gtest.h>

namespace kvring::openai {
namespace {

GenerationRequest Ok(Route route, std::string body) {
  GenerationRequest request;
  const auto error = ReadGenerationRequest(route, body, request);
  EXPECT_FALSE(error.has_value()) << error->message << " in " << body;
  return request;
}

ApiError Bad(Route route, std::string body) {
  GenerationRequest request;
  const auto error = ReadGenerationRequest(route, body, request);
  EXPECT_TRUE(error.has_value()) << body;
  return error.value_or(ApiError{200});
}

std::string Chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + more + "}";
}
std::string Text(const std::string& more) { return R"({"prompt":"hi")" + more + "}"; }

TEST(GenerationRequest, Defaults_AreOpenAIs) {
  const GenerationRequest request = Ok(Route::kChat, Chat(""));
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.n, 1);
  EXPECT_FALSE(request.sampling.max_tokens.has_value());
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_EQ(request.canonical, "user\x1Fhi\x1E");
  EXPECT_EQ(request.messages.at(0).content_begin, 5u);
}

TEST(GenerationRequest, EveryField_IsRead) {
  const GenerationRequest request = Ok(
      Route::kChat,
      Chat(
          R"(,"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0.9,
    "top_k":40,"min_p":0.1,"seed":-1,"n":3,"stop":["a","b"],"frequency_penalty":1,"presence_penalty":-1,"logprobs":true,
    "top_logprobs":2,"logit_bias":{"5":-100},"min_tokens":4,"ignore_eos":true,"max_completion_tokens":9,"cache_salt":"s","user":"u")"));
  EXPECT_TRUE(request.stream && request.include_usage && request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.sampling.logprobs, 2);
  EXPECT_EQ(request.sampling.logit_bias.at(5), -100);
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.min_tokens, 4);
  EXPECT_EQ(request.cache_salt, "s");
}

TEST(GenerationRequest, PriorityAndCacheRetention_AreRead) {
  const GenerationRequest request =
      Ok(Route::kChat, Chat(R"(,"priority":-3,"cache_retention":{"class":"pinned","ttl_s":60})"));
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.cache_retention.cache_class, CacheClass::kPinned);
  EXPECT_EQ(request.cache_retention.ttl_s, 60);
  EXPECT_EQ(Ok(Route::kChat, Chat(R"(,"cache_retention":{"class":"low"})")).cache_retention.cache_class,
            CacheClass::kLow);
  EXPECT_EQ(Ok(Route::kChat, Chat("")).cache_retention.cache_class, CacheClass::kNormal);
}

TEST(GenerationRequest, Truncation_OnlyWhenAsked_OnePromptWithoutEcho_SMP_10) {
  EXPECT_FALSE(Ok(Route::kChat, Chat("")).truncate_prompt_tokens.has_value());
  EXPECT_EQ(Ok(Route::kChat, Chat(R"(,"truncate_prompt_tokens":7)")).truncate_prompt_tokens, 7);
  EXPECT_EQ(Bad(Route::kChat, Chat(R"(,"truncate_prompt_tokens":0)")).param, "truncate_prompt_tokens");
  for (const char* body : {R"({"prompt":["a","b"],"truncate_prompt_tokens":7})",
                           R"({"prompt":"a","echo":true,"truncate_prompt_tokens":7})"}) {
    EXPECT_EQ(Bad(Route::kCompletions, body).param, "truncate_prompt_tokens");
  }
}

TEST(GenerationRequest, WrongCacheRetention_IsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"priority":1.5)", "priority"},
      {R"(,"cache_retention":"high")", "cache_retention"},
      {R"(,"cache_retention":{"class":"highest"})", "cache_retention.class"},
      {R"(,"cache_retention":{"class":"high"})", "cache_retention.ttl_s"},
      {R"(,"cache_retention":{"class":"pinned","ttl_s":86401})", "cache_retention.ttl_s"},
      {R"(,"cache_retention":{"class":"low","ttl_s":5})", "cache_retention.ttl_s"},
      {R"(,"cache_retention":{"ttl":5})", "cache_retention.ttl"}};
  for (const auto& [field, param] : cases) EXPECT_EQ(Bad(Route::kChat, Chat(field)).param, param) << field;
}

TEST(GenerationRequest, Nulls_AreDefaults) {
  const GenerationRequest request = Ok(
      Route::kChat,
      Chat(
          R"(,"max_tokens":null,"stop":null,"temperature":null,"tools":null,"stream_options":null,"seed":null)"));
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_TRUE(request.tools_json.empty());
}

// SMP-04
TEST(GenerationRequest, MaxTokens_SMP_04) {
  for (const char* bad : {"0", "-1", "1.5", "\"5\"", "9223372036854775808"}) {
    const ApiError error = Bad(Route::kChat, Chat(std::string(R"(,"max_tokens":)") + bad));
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, "max_tokens") << bad;
  }
  for (const char* bad : {"0", "-1", "1.5", "\"5\"", "9223372036854775808"}) {
    EXPECT_EQ(Bad(Route::kCompletions, Text(std::string(R"(,"max_tokens":)") + bad)).param, "max_tokens")
        << bad;
  }
  EXPECT_EQ(Ok(Route::kCompletions, Text(R"(,"max_tokens":0,"echo":true,"logprobs":1)")).sampling.max_tokens,
            0);
  EXPECT_FALSE(Ok(Route::kChat, Chat(R"(,"max_tokens":null)")).sampling.max_tokens.has_value());
}

// PRX-10 (n = 0 is refused before any stream header), PRX-25 (stream_options without stream)
TEST(GenerationRequest, WrongFields_AreNamed_PRX_10_PRX_25) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(,"n":0)", "n"},
      {R"(,"n":129)", "n"},
      {R"(,"temperature":2.1)", "temperature"},
      {R"(,"temperature":"hot")", "temperature"},
      {R"(,"top_p":0)", "top_p"},
      {R"(,"stop":[""])", "stop"},
      {R"(,"stop":5)", "stop"},
      {R"(,"stop":["a",5])", "stop[1]"},
      {R"(,"seed":1.5)", "seed"},
      {R"(,"stream":"true")", "stream"},
      {R"(,"stream_options":{"include_usage":true})", "stream_options"},
      {R"(,"stream":false,"stream_options":{})", "stream_options"},
      {R"(,"logit_bias":{"x":1})", "logit_bias"},
      {R"(,"logprobs":3)", "logprobs"},
      {R"(,"top_logprobs":3)", "top_logprobs"},
      {R"(,"presence_penalty":3)", "presence_penalty"}};
  for (const auto& [field, param] : cases) {
    const ApiError error = Bad(Route::kChat, Chat(field));
    EXPECT_EQ(error.param, param) << field;
    EXPECT_EQ(error.http_status, 400);
  }
}

TEST(GenerationRequest, Prompts_AllFourForms) {
  EXPECT_EQ(Ok(Route::kCompletions, R"({"prompt":"a"})").prompts.size(), 1u);
  EXPECT_EQ(Ok(Route::kCompletions, R"({"prompt":["a","b"]})").prompts.size(), 2u);
  EXPECT_EQ(Ok(Route::kCompletions, R"({"prompt":[1,2]})").prompt_ids.at(0), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Ok(Route::kCompletions, R"({"prompt":[[1,2],[3]]})").prompt_ids.size(), 2u);
  for (const char* bad :
       {R"({"prompt":[1,"a"]})", R"({"prompt":["a",1]})", R"({"prompt":[[1],"a"]})", R"({"prompt":[-1]})",
        R"({"prompt":[]})", R"({})", R"({"prompt":{}})", R"({"prompt":[1.5]})", R"({"prompt":[[1],2]})"}) {
    EXPECT_EQ(Bad(Route::kCompletions, bad).http_status, 400) << bad;
  }
}

TEST(GenerationRequest, EqualKeys_TheLastCounts) {
  EXPECT_EQ(Ok(Route::kCompletions, R"({"prompt":"a","prompt":"b"})").prompts,
            (std::vector<std::string>{"b"}));
  const GenerationRequest chat =
      Ok(Route::kChat, R"({"messages":[{"role":"user","content":"a"}],"stop":"x","stop":"y",
      "messages":[{"role":"user","content":"b"}]})");
  EXPECT_EQ(chat.canonical, "user\x1F\x62\x1E");
  EXPECT_EQ(chat.messages.size(), 1u);
  EXPECT_EQ(chat.sampling.stop, (std::vector<std::string>{"y"}));
}

TEST(GenerationRequest, Messages_AreRequired) {
  EXPECT_EQ(Bad(Route::kChat, R"({"model":"m"})").param, "messages");
  EXPECT_EQ(Bad(Route::kChat, R"({"messages":[]})").param, "messages");
}

TEST(GenerationRequest, Offsets_CountTheToolsBeforeThem) {
  const GenerationRequest request = Ok(Route::kChat, Chat(R"(,"tools":[{"a":1}])"));
  EXPECT_EQ(request.canonical.substr(request.messages.at(0).content_begin, 2), "hi");
  EXPECT_EQ(request.tools_json, R"([{"a":1}])");
}

}  // namespace
}  // namespace kvring::openai
