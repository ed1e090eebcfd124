#include "replica/model/tokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "common/random.h"
#include "common/utf8.h"
#include "replica/model/byte_alphabet.h"
#include "replica/model/encoded_prompt.h"
#include "replica/model/score_merges.h"
#include "tests/unit/replica/model/text_fixture.h"

namespace kvring::replica {
namespace {

TokenizerSpec ByteSpec(std::string_view pre) {
  TokenizerSpec spec;
  spec.file = "f";
  spec.splits = NamedSplits(pre).value();
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(byte))));
  spec.types.assign(256, static_cast<int32_t>(TokenType::kNormal));
  return spec;
}

void AddToken(TokenizerSpec& spec, const std::string& token, TokenType type) {
  spec.tokens.push_back(token);
  spec.types.push_back(static_cast<int32_t>(type));
}

std::vector<std::string> Pieces(std::string_view pre, std::string_view text) {
  std::vector<std::string> out;
  Pretokenizer::Create(NamedSplits(pre).value()).value().Split(text, [&](std::string_view piece) {
    out.emplace_back(piece);
  });
  return out;
}

// Strings and ids on which llama.cpp and Hugging Face agree (testdata/README.md).
TEST(Tokenizer, GoldenStrings_OfTheRealModel) {
  KVRING_SKIP_WITHOUT_MODEL();
  std::ifstream in(KVRING_SOURCE_DIR "/tests/unit/replica/model/testdata/tokenizer_golden.json");
  std::stringstream text;
  text << in.rdbuf();
  const auto cases = boost::json::parse(text.str()).as_array();
  ASSERT_EQ(cases.size(), 300u);
  const Tokenizer& tokenizer = *TheRealText()->tokenizer;
  for (const auto& entry : cases) {
    const auto input = boost::json::value_to<std::string>(entry.at("text"));
    const auto ids = boost::json::value_to<std::vector<TokenId>>(entry.at("ids"));
    EXPECT_EQ(tokenizer.Encode(input, ControlTokens::kParse), ids) << input;
    EXPECT_EQ(tokenizer.DecodeBytes(ids), input);
  }
}

std::string WithoutLackingBytes(std::string text) {
  std::array<bool, 256> known{};
  for (TokenId id = 0; id < TheRealText()->tokenizer->vocab_size(); ++id) {
    const std::string& bytes = TheRealText()->tokenizer->Bytes(id);
    if (bytes.size() == 1) known[static_cast<uint8_t>(bytes[0])] = true;
  }
  std::erase_if(text, [&](char c) { return !known[static_cast<uint8_t>(c)]; });
  return text;
}

// TOK-04: byte-level models give every text back.
TEST(Tokenizer, RandomText_RoundTrips_TOK_04) {
  KVRING_SKIP_WITHOUT_MODEL();
  Random random(5);
  for (int i = 0; i < 2'000; ++i) {
    std::string text;
    for (int c = 0; c < 100; ++c) {
      auto code = static_cast<uint32_t>(random.Below(random.Below(2) == 0 ? 0x250 : 0x110000));
      if (code >= 0xD800 && code < 0xE000) code = ' ';
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else if (code < 0x800) {
        text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
      } else if (code < 0x10000) {
        text += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
                 static_cast<char>(0x80 | (code & 63))};
      } else {
        text += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
                 static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
      }
    }
    EXPECT_EQ(
        TheRealText()->tokenizer->DecodeBytes(TheRealText()->tokenizer->Encode(text, ControlTokens::kAsText)),
        WithoutLackingBytes(text));
  }
}

// TOK-03: digit grouping is the rule set's.
TEST(Pretokenizer, DigitGroups_TOK_03) {
  EXPECT_EQ(Pieces("llama3", "1234567"), (std::vector<std::string>{"123", "456", "7"}));
  EXPECT_EQ(Pieces("smollm", "1234567").size(), 7u);
  EXPECT_EQ(Pieces("qwen2", "1234567").size(), 7u);
  EXPECT_EQ(Pieces("gpt2", "1234567"), (std::vector<std::string>{"1234567"}));
  EXPECT_EQ(Pieces("gpt2", "3.14 v10"), (std::vector<std::string>{"3", ".", "14", " v", "10"}));
}

TEST(Pretokenizer, WhiteSpaceAndContractions) {
  EXPECT_EQ(Pieces("gpt2", "a  b"), (std::vector<std::string>{"a", " ", " b"}));
  EXPECT_EQ(Pieces("gpt2", "x \n\n y  "), (std::vector<std::string>{"x", " \n\n", " y", "  "}));
  EXPECT_EQ(Pieces("gpt2", "don't I'LL"), (std::vector<std::string>{"don", "'t", " I", "'", "LL"}));
  EXPECT_EQ(Pieces("llama3", "I'LL\r\n\r\nx"), (std::vector<std::string>{"I", "'LL", "\r\n\r\n", "x"}));
  EXPECT_EQ(Pieces("gpt2", "a\u180Eb").size(), 3u);  // not white space in Unicode since 6.3
}

TEST(Pretokenizer, Pieces_AreTheText) {
  const std::string text = "Caf\u00E9 \U0001F468\u200D\U0001F469  12 \u2029\uA3E4 x=1\t\n";
  for (const char* pre : {"gpt2", "smollm", "llama3", "qwen2"}) {
    std::string joined;
    for (const std::string& piece : Pieces(pre, text)) joined += piece;
    EXPECT_EQ(joined, text) << pre;
  }
}

TEST(Pretokenizer, UnknownName_ListsTheKnown) {
  const auto status = NamedSplits("martian").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("smollm"), std::string::npos);
}

// The rule of BPE against its naive form: merge the best-ranked leftmost pair until none is left.
TEST(Bpe, LongAndShortWays_EqualTheNaiveRule) {
  BpeMerges merges;
  std::vector<std::tuple<TokenId, TokenId, TokenId>> rules;
  Random random(9);
  for (TokenId merged = 10; merged < 300; ++merged) {
    const auto left = static_cast<TokenId>(random.Below(static_cast<uint64_t>(merged)));
    const auto right = static_cast<TokenId>(random.Below(static_cast<uint64_t>(merged)));
    bool known = false;
    for (const auto& [l, r, m] : rules) known |= l == left && r == right;
    if (known) continue;
    rules.emplace_back(left, right, merged);
    merges.Add({left, right, merged, merged});
  }
  for (int round = 0; round < 400; ++round) {
    std::vector<TokenId> symbols(random.Below(120));
    for (TokenId& symbol : symbols) symbol = static_cast<TokenId>(random.Below(10));
    std::vector<TokenId> naive = symbols;
    for (bool merged = true; merged;) {
      merged = false;
      for (const auto& [left, right, result] : rules) {
        for (size_t i = 0; i + 1 < naive.size() && !merged; ++i) {
          if (naive[i] != left || naive[i + 1] != right) continue;
          naive[i] = result;
          naive.erase(naive.begin() + static_cast<ptrdiff_t>(i) + 1);
          merged = true;
        }
        if (merged) break;
      }
    }
    merges.Apply(symbols);
    EXPECT_EQ(symbols, naive);
  }
}

TEST(Bpe, LongUnbrokenInput_IsNotQuadratic) {
  KVRING_SKIP_WITHOUT_MODEL();
  const std::string text(1 << 20,
                         'a');  // a quadratic BPE needs about 10^12 steps: the suite's time limit is the bar
  EXPECT_EQ(
      TheRealText()->tokenizer->DecodeBytes(TheRealText()->tokenizer->Encode(text, ControlTokens::kAsText)),
      text);
}

// MOD-06
TEST(Tokenizer, ByteTokens_MustBeBytes_MOD_06) {
  for (const char* bad : {"<0x-1>", "<0xZZ>", "<0x1", "<0x100>", "", "<0x4>", "0x41"}) {
    TokenizerSpec spec = ByteSpec("gpt2");
    AddToken(spec, bad, TokenType::kByte);
    const auto status = Tokenizer::Create(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("tokens[256]"), std::string::npos) << status;
  }
  TokenizerSpec twice = ByteSpec("gpt2");
  AddToken(twice, "<0x41>", TokenType::kByte);
  EXPECT_FALSE(Tokenizer::Create(twice).ok());
}

TEST(Tokenizer, BadVocabularies_AreNamed) {
  TokenizerSpec twice = ByteSpec("gpt2");
  AddToken(twice, "a", TokenType::kNormal);
  EXPECT_NE(Tokenizer::Create(twice).status().message().find("twice"), std::string::npos);
  for (const auto& [left, right] : {std::pair{"a", ""}, {"a", "zz"}, {"", ""}, {"zz", "b"}, {"a", "b"}}) {
    TokenizerSpec spec = ByteSpec("gpt2");
    spec.merges = {{left, right}};
    EXPECT_NE(Tokenizer::Create(spec).status().message().find("merges[0]"), std::string::npos) << left;
  }
  TokenizerSpec bos = ByteSpec("gpt2");
  bos.bos = 999;
  EXPECT_NE(Tokenizer::Create(bos).status().message().find("bos_token_id"), std::string::npos);
  TokenizerSpec types = ByteSpec("gpt2");
  types.types.pop_back();
  EXPECT_FALSE(Tokenizer::Create(types).ok());
  TokenizerSpec type = ByteSpec("gpt2");
  type.types[7] = 77;
  EXPECT_NE(Tokenizer::Create(type).status().message().find("tokens[7]"), std::string::npos);
  TokenizerSpec giant = ByteSpec("gpt2");
  AddToken(giant, std::string(kMaxTokenBytes + 1, 'a'), TokenType::kNormal);
  EXPECT_NE(Tokenizer::Create(giant).status().message().find("tokens[256]"), std::string::npos);
}

// What Hugging Face's byte-level BPE does without an unknown token: the byte is dropped and its neighbours
// meet.
TEST(Tokenizer, BytesThatTheVocabularyLacks_AreDropped) {
  TokenizerSpec spec = ByteSpec("gpt2");
  spec.tokens[4] = AlphabetOfBytes("ab");
  spec.merges = {{"a", "b"}};
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.Encode("xa\x04", ControlTokens::kAsText), (std::vector<TokenId>{'x', 'a'}));
  const EncodedPrompt prompt = EncodeText(tokenizer, "\x04xa\x04\x04\ny");
  EXPECT_EQ(prompt.tokens, (std::vector<TokenId>{'x', 'a', '\n', 'y'}));
  EXPECT_EQ(prompt.end_bytes, (std::vector<uint32_t>{2, 3, 6, 7}));
}

// Token ids of a client may end inside a character, and their text is encoded anew when the answer ends
// (TOK-01).
TEST(Tokenizer, BytesThatAreNoText_AreEncodedOneByOne_TOK_01) {
  const Tokenizer tokenizer = Tokenizer::Create(ByteSpec("gpt2")).value();
  for (const std::string text : {"\xF0\x9F", "\xF0", "a\xC3", "\xFF\xFE", "ok \xE6\x97 \U0001F600 \x80"}) {
    EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode(text, ControlTokens::kAsText)), text);
  }
}

TEST(Tokenizer, ControlTokens_OnlyWhereAskedFor) {
  TokenizerSpec spec = ByteSpec("gpt2");
  AddToken(spec, "<|end|>", TokenType::kControl);
  AddToken(spec, "<tool>", TokenType::kUserDefined);
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.Encode("a<|end|>b", ControlTokens::kParse), (std::vector<TokenId>{'a', 256, 'b'}));
  EXPECT_EQ(tokenizer.Encode("a<|end|>b", ControlTokens::kAsText).size(), 9u);
  EXPECT_EQ(tokenizer.Encode("<tool>", ControlTokens::kAsText), (std::vector<TokenId>{257}));
}

// A piece of text never becomes a control token, not by a merge and not as a whole word (TOK-05).
TEST(Tokenizer, NoRuleMakesAControlTokenOfText_TOK_05) {
  TokenizerSpec spec = ByteSpec("gpt2");
  AddToken(spec, "<s>", TokenType::kControl);
  AddToken(spec, "<s", TokenType::kNormal);
  spec.merges = {{"<", "s"}, {"<s", ">"}};
  spec.whole_words = true;
  spec.splits.clear();
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.Encode("<s>", ControlTokens::kAsText), (std::vector<TokenId>{257, '>'}));
  EXPECT_EQ(tokenizer.Encode("<s>", ControlTokens::kParse), (std::vector<TokenId>{256}));
}

TEST(Tokenizer, WholeWords_AreNotMerged) {
  TokenizerSpec spec = ByteSpec("gpt2");
  AddToken(spec, "abc", TokenType::kNormal);
  for (const bool whole : {false, true}) {
    spec.whole_words = whole;
    const Tokenizer tokenizer = Tokenizer::Create(spec).value();
    EXPECT_EQ(tokenizer.Encode("abc", ControlTokens::kAsText).size(), whole ? 1u : 3u);
  }
}

TEST(Tokenizer, UnusedTokens_AreNeverTextNorFound) {
  TokenizerSpec spec = ByteSpec("gpt2");
  AddToken(spec, "pad", TokenType::kUnused);
  AddToken(spec, "pad", TokenType::kUnused);
  spec.whole_words = true;
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.Encode("pad", ControlTokens::kParse).size(), 3u);
  EXPECT_EQ(tokenizer.Bytes(257), "");
}

// --- SentencePiece ---

// <unk>, <s>, the bytes, then these.
TokenizerSpec SpmSpec(const std::vector<std::pair<std::string, float>>& pieces) {
  TokenizerSpec spec;
  spec.file = "f";
  spec.alphabet = TokenAlphabet::kSentencePiece;
  spec.prefix_space = PrefixSpace::kAlways;
  AddToken(spec, "<unk>", TokenType::kUnknown);
  AddToken(spec, "<s>", TokenType::kControl);
  std::vector<float> scores(2);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    AddToken(spec, name, TokenType::kByte);
    scores.push_back(0);
  }
  for (const auto& [piece, score] : pieces) {
    AddToken(spec, piece, TokenType::kNormal);
    scores.push_back(score);
  }
  spec.unknown = 0;
  AddScoreMerges(scores, spec);
  return spec;
}

std::vector<std::string> Texts(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(tokenizer.Bytes(id));
  return out;
}

TEST(SentencePiece, HighestScoreFirst_PrefixSpaceAndBytes) {
  const Tokenizer tokenizer =
      Tokenizer::Create(
          SpmSpec({{"\u2581", -9}, {"a", -9}, {"b", -9}, {"ab", -3}, {"ba", -2}, {"\u2581a", -1}}))
          .value();
  const auto texts = [&](std::string_view text) {
    return Texts(tokenizer, tokenizer.Encode(text, ControlTokens::kAsText));
  };
  EXPECT_EQ(texts("aba"), (std::vector<std::string>{" a", "ba"}));
  EXPECT_EQ(texts("bab"), (std::vector<std::string>{" ", "ba", "b"}));
  EXPECT_EQ(texts("a\u00E9"), (std::vector<std::string>{" a", "\xC3", "\xA9"}));
  EXPECT_EQ(texts(" a"), (std::vector<std::string>{" ", " a"}));
  EXPECT_EQ(texts(""), (std::vector<std::string>{}));
}

// Pairs of the same score merge from the left, whatever they are made of.
TEST(SentencePiece, EqualScores_TheLeftmostPairMergesFirst) {
  const Tokenizer tokenizer =
      Tokenizer::Create(SpmSpec({{"x", -9}, {"y", -9}, {"yx", -1}, {"xy", -1}})).value();
  EXPECT_EQ(Texts(tokenizer, tokenizer.Encode("xyx", ControlTokens::kAsText)).back(), "x");
  EXPECT_EQ(Texts(tokenizer, tokenizer.Encode("yxy", ControlTokens::kAsText)).back(), "y");
}

// A character that came as byte tokens streams as a whole; one that is cut is one replacement at the end.
TEST(SentencePiece, ByteTokens_StreamWholeCharacters_TOK_01) {
  const Tokenizer tokenizer = Tokenizer::Create(SpmSpec({{"\u2581", -9}, {"a", -8}})).value();
  std::vector<TokenId> ids = tokenizer.Encode("a\U0001F600a", ControlTokens::kAsText);
  ASSERT_EQ(ids.size(), 7u);
  ids.insert(ids.end(), {2 + 0xF0, 2 + 0x9F});
  Utf8Assembler assembler;
  std::vector<std::string> deltas;
  for (const TokenId id : ids) deltas.push_back(assembler.Push(tokenizer.Bytes(id)));
  EXPECT_EQ(deltas, (std::vector<std::string>{" ", "a", "", "", "", "\U0001F600", "a", "", ""}));
  EXPECT_EQ(assembler.Finish(), "\uFFFD");
}

// A token of a megabyte is refused at once, not tried at each of its bytes (MOD-01).
TEST(SentencePiece, GiantTokens_AreRefusedAtOnce_MOD_01) {
  const TokenizerSpec spec = SpmSpec({{"a", -1}, {std::string(1 << 20, 'a'), -2}});
  EXPECT_TRUE(spec.merges.empty());
  EXPECT_NE(Tokenizer::Create(spec).status().message().find("is longer than"), std::string::npos);
}

// The name of a byte typed as text is text, though its pieces could merge into it.
TEST(SentencePiece, TypedByteNames_AreText_MOD_06) {
  TokenizerSpec spec = SpmSpec({{"\u2581", -9}, {"<0x", -1}, {"41>", -1}});
  spec.merges.emplace_back("<0x", "41>");
  spec.ranks.push_back(0);
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode("<0x41>", ControlTokens::kAsText)), "<0x41>");
}

TEST(SentencePiece, DecodeBytes_GivesTheTextBack_TOK_04) {
  const Tokenizer tokenizer =
      Tokenizer::Create(SpmSpec({{"\u2581", -9}, {"a", -8}, {"\u2581a", -1}, {"\u2581\u2581", -2}})).value();
  for (const std::string text : {"a", " a", "  a  ", "\u00E9\n\t", "\xF0\x9F\x98", "\U0001F600 a\xFF"}) {
    EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode(text, ControlTokens::kAsText)), text);
  }
}

// The ends of tokens skip the space that the text does not have; none lies behind the text.
TEST(SentencePiece, Ends_SkipTheInsertedSpace) {
  TokenizerSpec spec = SpmSpec({{"\u2581", -9}, {"a", -8}, {"\u2581a", -1}});
  spec.bos = 1;
  spec.add_bos = true;
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  const EncodedPrompt prompt = EncodeText(tokenizer, "aa \u00E9");
  EXPECT_EQ(prompt.tokens.size(), 6u);  // <s> " a" a " " C3 A9
  EXPECT_EQ(prompt.end_bytes, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(SentencePiece, PrefixSpace_ByItsRule) {
  const std::vector<std::pair<std::string, float>> pieces = {{"\u2581", -9}, {"a", -8}, {"\u2581a", -1}};
  const auto count = [&](PrefixSpace prefix, std::string_view text, TextPlace place) {
    TokenizerSpec spec = SpmSpec(pieces);
    spec.prefix_space = prefix;
    return Texts(Tokenizer::Create(spec).value(),
                 Tokenizer::Create(spec).value().Encode(text, ControlTokens::kParse, place));
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(count(PrefixSpace::kNone, "a", TextPlace::kBeginning), List{"a"});
  EXPECT_EQ(count(PrefixSpace::kMissing, " a<s>a", TextPlace::kBeginning), (List{" a", "<s>", " a"}));
  EXPECT_EQ(count(PrefixSpace::kFirstOnly, "a<s>a", TextPlace::kBeginning), (List{" a", "<s>", "a"}));
  EXPECT_EQ(count(PrefixSpace::kFirstOnly, "a", TextPlace::kBehindTokens), List{"a"});
  EXPECT_EQ(count(PrefixSpace::kAlways, " a<s>a", TextPlace::kBehindTokens), (List{" ", " a", "<s>", " a"}));
}

// Composed text is what is encoded; where it reads otherwise than the text, tokens end with the text.
TEST(Tokenizer, Nfc_ComposesFirst) {
  TokenizerSpec spec = ByteSpec("qwen2");
  spec.nfc = true;
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode("e\u0301x", ControlTokens::kAsText)), "\u00E9x");
  EXPECT_EQ(EncodeText(tokenizer, "ye\u0301x").end_bytes, (std::vector<uint32_t>{1, 5, 5, 5}));
}

// TOK-07, raw text: one BOS, whether typed or not.
TEST(EncodeText, ExactlyOneBos_TOK_07) {
  TokenizerSpec spec = ByteSpec("gpt2");
  AddToken(spec, "<s>", TokenType::kControl);
  spec.bos = 256;
  spec.add_bos = true;
  const Tokenizer tokenizer = Tokenizer::Create(spec).value();
  EXPECT_EQ(EncodeText(tokenizer, "hi").tokens, (std::vector<TokenId>{256, 'h', 'i'}));
  EXPECT_EQ(EncodeText(tokenizer, "hi").end_bytes, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(EncodeText(tokenizer, "<s>hi").tokens, (std::vector<TokenId>{256, 'h', 'i'}));
  EXPECT_EQ(EncodeText(tokenizer, "<s>hi").end_bytes, (std::vector<uint32_t>{3, 4, 5}));
}

TEST(EncodeText, BlockEnds_AreThoseOfWholeBlocks) {
  EXPECT_EQ(BlockEnds({1, 2, 5, 9, 10}, 2), (std::vector<uint32_t>{2, 9}));
  EXPECT_TRUE(BlockEnds({1}, 2).empty());
}

TEST(ByteAlphabet, RoundTripsAllBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(BytesOfAlphabet(AlphabetOfBytes(all)), all);
  EXPECT_EQ(AlphabetOfBytes(" \n"), "\u0120\u010A");
}

}  // namespace
}  // namespace kvring::replica
