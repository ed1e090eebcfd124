#include "replica/server/choice_text.h"

#include <gtest/gtest.h>

#include "replica/model/byte_alphabet.h"

namespace kvring::replica {
namespace {

// Bytes 0…255 as tokens 0…255, "ab" as 256, a control token 257.
Tokenizer ByteTokenizer() {
  TokenizerSpec spec;
  spec.splits = NamedSplits("gpt2").value();
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(byte))));
  spec.types.assign(256, 1);
  spec.tokens.push_back("ab");
  spec.types.push_back(1);
  spec.tokens.push_back("<|end|>");
  spec.types.push_back(3);
  spec.merges = {{"a", "b"}};
  return Tokenizer::Create(spec).value();
}

EngineEvent::Token Sampled(TokenId token, bool end = false) {
  return {.choice = 0, .token = token, .end_of_sequence = end, .logprobs = {}};
}

ChoiceText Answer(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool end) {
  ChoiceText choice(tokenizer, {});
  for (TokenId token : tokens) choice.Push(Sampled(token));
  if (end) choice.Push(Sampled(257, true));
  choice.Finish(false);
  return choice;
}

TEST(ChoiceText, EndOfSequence_CountsButHasNoText) {
  const Tokenizer tokenizer = ByteTokenizer();
  const ChoiceText choice = Answer(tokenizer, {'h', 'i'}, true);
  EXPECT_EQ(choice.text(), "hi");
  EXPECT_EQ(choice.sampled(), 3);
  EXPECT_EQ(choice.tokens(), (std::vector<TokenId>{'h', 'i'}));
}

TEST(ChoiceText, Echo_ComesBeforeTheFirstText) {
  const Tokenizer tokenizer = ByteTokenizer();
  ChoiceText choice(tokenizer, {});
  choice.PushEcho("prompt");
  EXPECT_EQ(choice.Push(Sampled('x')).text, "promptx");
  EXPECT_EQ(choice.Push(Sampled('y')).text, "y");
  ChoiceText nothing(tokenizer, {});
  nothing.PushEcho("prompt");
  EXPECT_EQ(nothing.Finish(false).text, "prompt");
}

TEST(ChoiceText, GeneratedControlTokens_HaveNoText) {
  const Tokenizer tokenizer = ByteTokenizer();
  EXPECT_EQ(Answer(tokenizer, {'a', 257, 'c'}, false).text(), "ac");
}

// Prompt "<end>xy" (3 tokens), canonical size 10, answer begins at 20, blocks of 2 tokens.
std::vector<uint32_t> Ends(const std::vector<TokenId>& answer, bool end) {
  const Tokenizer tokenizer = ByteTokenizer();
  return ConversationBlockEnds(tokenizer, {257, 'x', 'y'}, {0, 9, 10}, Answer(tokenizer, answer, end), 20, 2);
}

TEST(ConversationBlockEnds, CoverWhatIsComputed) {
  // Tokens: 257 x | y h | i j | . The last sampled token is not computed: 3 + 3 - 1 = 5 tokens, two whole
  // blocks.
  EXPECT_EQ(Ends({'h', 'i', 'j'}, false), (std::vector<uint32_t>{9, 21}));
  // With an end-of-sequence token the three are computed: 6 tokens, three blocks.
  EXPECT_EQ(Ends({'h', 'i', 'j'}, true), (std::vector<uint32_t>{9, 21, 23}));
  EXPECT_EQ(Ends({}, true), (std::vector<uint32_t>{9}));
}

TEST(ConversationBlockEnds, StopWhereTheNextTurnWouldTokeniseOtherwise) {
  // Sampled "a","b" where the tokenizer writes "ab" as one: from there on no block will be found again.
  EXPECT_EQ(Ends({'a', 'b', 'c', 'd', 'e'}, true), (std::vector<uint32_t>{9}));
  EXPECT_EQ(Ends({'h', 'a', 'b', 'c', 'd'}, true), (std::vector<uint32_t>{9, 21}));
  EXPECT_EQ(Ends({256, 'c', 'd', 'e'}, true), (std::vector<uint32_t>{9, 22, 24}));
}

// SentencePiece: the space in front of the prompt's text is a token's, not the text's; the answer's bytes
// count from where it begins.
TEST(ConversationBlockEnds, PrefixSpace_MovesNoEnd) {
  TokenizerSpec spec;
  spec.alphabet = TokenAlphabet::kSentencePiece;
  spec.prefix_space = PrefixSpace::kAlways;
  spec.tokens = {"<s>", "\u2581", "x", "y", "h", "i", "\u2581x"};
  spec.types = {3, 1, 1, 1, 1, 1, 1};
  spec.merges = {{"\u2581", "x"}};
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  ASSERT_EQ(tokenizer.Encode("<s>xyhi", ControlTokens::kParse), (std::vector<TokenId>{0, 6, 3, 4, 5}));
  ChoiceText answer(tokenizer, {});
  answer.Push(Sampled(4));
  answer.Push(Sampled(5));
  answer.Push(Sampled(0, true));
  answer.Finish(false);
  EXPECT_EQ(ConversationBlockEnds(tokenizer, {0, 6, 3}, {0, 9, 10}, answer, 20, 1),
            (std::vector<uint32_t>{0, 9, 10, 21, 22}));
}

}  // namespace
}  // namespace kvring::replica
