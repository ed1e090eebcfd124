// tokenizer.json and the files beside it: what is read, and that whatever is wrong or not built in is an
// error that names file and field. The tokens themselves are compared with Hugging Face's in
// tests/e2e/test_tokenizer_reference.py.
#include "replica/model/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "replica/model/model_text.h"
#include "replica/model/tokenizer.h"

namespace kvring::replica {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr char kModel[] =
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":3,"Ġ":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})";
constexpr char kAdded[] = R"("added_tokens":[{"id":4,"content":"<|end|>","special":true}])";

absl::StatusOr<TokenizerSpec> Read(const std::string& text) {
  auto file = JsonFile::Parse(text, "t.json");
  if (!file.ok()) return file.status();
  return ReadHfTokenizer(*file);
}

std::string ErrorOf(const std::string& text) { return std::string(Read(text).status().message()); }

Tokenizer Make(const std::string& text) {
  const auto spec = Read(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return Tokenizer::Create(*spec).value();
}

std::string With(const std::string& part) { return "{" + std::string(kModel) + "," + part + "}"; }

TEST(HfTokenizer, ByteLevel_EncodesAndKeepsControlTokensApart_TOK_05) {
  const Tokenizer tokenizer = Make(With(kAdded));
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.Encode("ab<|end|> b", ControlTokens::kParse), (Ids{3, 4, 2, 1}));
  EXPECT_EQ(tokenizer.Encode("ab<|end|>", ControlTokens::kAsText), Ids{3});
  EXPECT_TRUE(tokenizer.IsControl(4));
}

// A token of turns is a control token even where its file calls it a plain one.
TEST(HfTokenizer, TokensOfTurns_AreControlTokensWhateverTheFileSays_TOK_05) {
  const Tokenizer tokenizer = Make(With(
      R"("added_tokens":[{"id":4,"content":"<|end|>","special":false},{"id":5,"content":"<end_of_turn>"},{"id":6,"content":"<tool>"}])"));
  EXPECT_TRUE(tokenizer.IsControl(4));
  EXPECT_TRUE(tokenizer.IsControl(5));
  EXPECT_FALSE(tokenizer.IsControl(6));
  EXPECT_EQ(tokenizer.Encode("<tool>", ControlTokens::kAsText), Ids{6});
}

TEST(HfTokenizer, MergesAsPairs_AndIdsWithGaps) {
  const Tokenizer tokenizer = Make(
      R"({"model":{"vocab":{"a":7,"b":1,"ab":3},"merges":[["a","b"]]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})");
  EXPECT_EQ(tokenizer.vocab_size(), 8);
  EXPECT_EQ(tokenizer.Encode("aab", ControlTokens::kAsText), (Ids{7, 3}));
  EXPECT_EQ(tokenizer.Bytes(2), "");
}

TEST(HfTokenizer, BosOfThePostProcessor) {
  const auto spec = Read(With(
      std::string(kAdded) +
      R"(,"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A"}}]}]})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->bos, 4);
  EXPECT_TRUE(spec->add_bos);
}

// Entries that only look like byte tokens are plain text (MOD-06).
TEST(HfTokenizer, OddByteTokens_ArePlainText_MOD_06) {
  const auto spec = Read(
      R"({"model":{"byte_fallback":true,"vocab":{"<0x-1>":0,"<0xZZ>":1,"<0x1":2,"<0x100>":3,"<0x41>":4,"<0x0a>":5,"<0x0A>":6},"merges":[]}})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->types, ElementsAre(1, 1, 1, 1, 6, 1, 6));
  EXPECT_TRUE(Tokenizer::Create(*spec).ok());
}

TEST(HfTokenizer, WrongFiles_NameTheField) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "t.json: is no JSON object"},
      {"[]", "t.json: is no JSON object"},
      {"{}", "\"model\" is missing"},
      {"{\"model\":3}", "\"model.vocab\" is missing"},
      {R"({"model":{"vocab":[],"merges":[]}})", "\"model.vocab\" is no object"},
      {R"({"model":{"vocab":{"a":"x"},"merges":[]}})", "\"model.vocab.a\" is no id"},
      {R"({"model":{"vocab":{"a":-1},"merges":[]}})", "token 'a' with id -1"},
      {R"({"model":{"vocab":{"a":4294967296},"merges":[]}})", "token 'a' with id 4294967296"},
      {R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})", "\"model.vocab.a\" is there twice"},
      {R"({"model":{"vocab":{"a":0,"b":0},"merges":[]}})", "two tokens with id 0"},
      {R"({"model":{"vocab":{"a":0}}})", "\"model.merges\" is missing"},
      {R"({"model":{"vocab":{"a":0},"merges":{}}})", "\"model.merges\" is no array"},
      {R"({"model":{"vocab":{"a":0},"merges":["a a","aa"]}})", "\"model.merges[1]\" is no pair"},
      {R"({"model":{"vocab":{"a":0},"merges":[["a"]]}})", "\"model.merges[0]\" is no pair"},
      {R"({"model":{"vocab":{"a":0},"merges":[["a",1]]}})", "\"model.merges[0]\" is no pair"},
      {R"({"model":{"vocab":{"a":0},"merges":["a b c"]}})", "\"model.merges[0]\" is no pair"},
      {R"({"model":{"vocab":{"a":0},"unk_token":"u","merges":[]}})", "\"model.unk_token\" is not in"},
      {With(R"("added_tokens":[{"id":0,"content":"x"}])"), "two tokens with id 0: 'a' and 'x'"},
      {With(R"("added_tokens":[{"id":9,"content":"a"}])"), "\"added_tokens[0].id\" is 9"},
      {With(R"("added_tokens":[{"id":9}])"), "\"added_tokens[0].content\" is missing"},
      {With(R"("added_tokens":[{"id":9,"content":""}])"), "\"added_tokens[0].content\" is empty"},
      {With(R"("added_tokens":[{"id":-9,"content":"x"}])"), "\"added_tokens[0].id\" is no whole number"},
      {With(R"("added_tokens":[{"id":99999999,"content":"x"}])"),
       "\"added_tokens[0]\" has token 'x' with id"},
      {With(R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"q"}}]})"),
       "is not in the vocabulary"},
      {R"({"a":{"b":1,"b":2}})", "\"a.b\" is there twice"},
      {"{\"a\":" + std::string(80, '[') + std::string(80, ']') + "}", "nests too deeply"},
      {"{\"a\":\"\xED\xA0\x80\"}", "is no JSON object"},
      {std::string("{\"a\":1}\0", 8), "is no JSON object"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(expected)) << text;
    EXPECT_THAT(ErrorOf(text), HasSubstr("t.json"));
  }
}

TEST(HfTokenizer, WhatIsNotBuiltIn_IsUnimplementedByItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"model":{"type":"Unigram","vocab":[]}})", "\"model.type\" is Unigram"},
      {R"({"model":{"dropout":0.1,"vocab":{},"merges":[]}})", "model.dropout"},
      {R"({"model":{"continuing_subword_prefix":"##","vocab":{},"merges":[]}})", "continuing_subword_prefix"},
      {R"({"model":{"end_of_word_suffix":"</w>","vocab":{},"merges":[]}})", "end_of_word_suffix"},
      {With(R"("normalizer":{"type":"Lowercase"})"), "\"normalizer.type\" is Lowercase"},
      {With(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]})"),
       "\"normalizer.normalizers[1].type\" is StripAccents"},
      {With(R"("added_tokens":[{"id":4,"content":"x","rstrip":true}])"), "\"added_tokens[0].rstrip\""},
      {With(R"("post_processor":{"type":"BertProcessing"})"), "post_processor.type"},
      {With(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"a"}}]})"),
       "a second token"},
      {R"({"model":{"vocab":{},"merges":[]},"pre_tokenizer":{"type":"Whitespace"}})",
       "\"pre_tokenizer.type\""},
      {R"({"model":{"vocab":{},"merges":[]},"pre_tokenizer":{"type":"Split","behavior":"Removed","pattern":{"Regex":"x"}}})",
       "\"pre_tokenizer.behavior\" is Removed"},
      {R"({"model":{"vocab":{},"merges":[]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}})",
       "a step behind ByteLevel"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(Read(text).status().code(), absl::StatusCode::kUnimplemented) << text;
    EXPECT_THAT(ErrorOf(text), HasSubstr(expected)) << text;
  }
}

TEST(HfTokenizer, Expressions_ThatPcreReadsOtherwise_AreRefused) {
  const auto error = [](const std::string& expression) {
    TokenizerSpec spec;
    spec.splits = {expression};
    return std::string(Tokenizer::Create(spec).status().message());
  };
  for (const char* odd : {R"(\w+)", R"(\bx)", R"([a[b]])", R"(x{1,2}+)", R"([\S])", R"(\h)"})
    EXPECT_THAT(error(odd), HasSubstr("not supported")) << odd;
  EXPECT_THAT(error("(x"), HasSubstr("is no regular expression"));
  EXPECT_THAT(error("x\\"), HasSubstr("is no regular expression"));
}

TEST(HfTokenizer, EveryTruncation_IsAnError) {
  const std::string good = With(kAdded);
  ASSERT_TRUE(Read(good).ok());
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(Read(good.substr(0, size)).ok()) << size;
}

// --- the directory ---

class FolderTest : public testing::Test {
 protected:
  FolderTest() : path_(testing::TempDir() + "/kvring_model_text") {
    std::filesystem::create_directories(path_);
    Put("tokenizer.json", With(kAdded));
    Put("config.json", R"({"vocab_size":8,"eos_token_id":3})");
  }
  ~FolderTest() override { std::filesystem::remove_all(path_); }

  void Put(const std::string& name, const std::string& text) { std::ofstream(path_ + "/" + name) << text; }
  std::string Error() const { return std::string(ReadModelText(path_).status().message()); }

  std::string path_;
};

TEST_F(FolderTest, AllFiles_AreRead) {
  Put("tokenizer_config.json",
      R"({"bos_token":{"content":"ab"},"eos_token":"<|end|>","add_bos_token":true,"chat_template":[{"name":"rag","template":"R"},{"name":"default","template":"D"}]})");
  Put("generation_config.json", R"({"eos_token_id":[1,4]})");
  const auto text = ReadModelText(path_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->tokenizer.tokens.size(), 8U);
  EXPECT_EQ(text->tokenizer.bos, 3);
  EXPECT_TRUE(text->tokenizer.add_bos);
  EXPECT_THAT(text->tokenizer.stops, ElementsAre(4, 1, 4));
  EXPECT_EQ(text->chat_template, "D");
  Put("chat_template.jinja", "J");
  EXPECT_EQ(ReadModelText(path_)->chat_template, "J");
}

// A base model: no template, the ends of config.json (MOD-11 refuses chat, not the model).
TEST_F(FolderTest, TokenizerAndConfigAlone_Load_MOD_11) {
  const auto text = ReadModelText(path_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->chat_template, "");
  EXPECT_THAT(text->tokenizer.stops, ElementsAre(3));
  EXPECT_EQ(text->tokenizer.bos, -1);
}

TEST_F(FolderTest, WrongOrMissingFiles_AreNamed) {
  Put("config.json", R"({"vocab_size":4})");
  EXPECT_THAT(Error(),
              testing::AllOf(HasSubstr("config.json: \"vocab_size\" is 4"), HasSubstr("has 5 tokens")));
  Put("config.json", R"({"vocab_size":9000000})");
  EXPECT_THAT(Error(), HasSubstr("\"vocab_size\" is 9000000"));
  Put("config.json", R"({"vocab_size":8,"eos_token_id":[8]})");
  EXPECT_THAT(Error(), HasSubstr("config.json: \"eos_token_id[0]\" is no whole number from 0 to 7"));
  Put("config.json", R"({"vocab_size":8})");
  Put("tokenizer_config.json", R"({"eos_token":"nope"})");
  EXPECT_THAT(Error(), HasSubstr("tokenizer_config.json: \"eos_token\" 'nope' is not in the vocabulary"));
  Put("tokenizer_config.json", R"({"add_bos_token":"yes"})");
  EXPECT_THAT(Error(), HasSubstr("\"add_bos_token\" is neither true nor false"));
  Put("tokenizer_config.json", R"({"chat_template":7})");
  EXPECT_THAT(Error(), HasSubstr("\"chat_template\" is no string"));
  Put("tokenizer_config.json", R"({"chat_template":[{"name":"x","template":"y"}]})");
  EXPECT_THAT(Error(), HasSubstr("no template named default"));
  std::filesystem::remove(path_ + "/tokenizer.json");
  EXPECT_THAT(Error(), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace kvring::replica
