#include "router/ledger/divergence.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/unit/router/ledger/chat_prompt.h"

namespace kvring::router {
namespace {

// Text that stays: sentences that differ from each other.
std::string Handbook(int sentences, int from = 0) {
  std::string text;
  for (int i = from; i < from + sentences; ++i)
    text += "Section " + std::to_string(i) + " says that item " + std::to_string(i * 37 % 101) +
            " may be returned within " + std::to_string(10 + i % 20) + " days if the seal is whole.\n";
  return text;
}

std::string SystemChat(const std::string& system, const std::string& user = "What now?") {
  return ChatPrompt({{"system", system}, {"user", user}});
}

// A value at the start of a system prompt before text that stays.
Divergence Changed(const std::string& before, const std::string& x, const std::string& y) {
  const std::string rest = ". " + Handbook(30);
  const auto found = FindDivergence(SystemChat(before + x + rest), SystemChat(before + y + rest));
  EXPECT_TRUE(found.has_value()) << x << " / " << y;
  return found.value_or(Divergence{});
}

struct ValuePair {
  const char* before;
  const char* x;
  const char* y;
  DivergenceClass cause;
};

class ChangedValueTest : public testing::TestWithParam<ValuePair> {};

TEST_P(ChangedValueTest, Value_HasItsClassAndWholeSpan) {
  const auto& [before, x, y, cause] = GetParam();
  const Divergence found = Changed(before, x, y);
  EXPECT_EQ(ClassName(found.cause), ClassName(cause)) << x << " / " << y;
  const size_t begin = std::string("system\x1F").size() + std::string(before).size();
  EXPECT_EQ(found.now.begin, begin) << y;
  EXPECT_EQ(found.now.end, begin + std::string(y).size()) << y;
  EXPECT_EQ(found.place.part, PromptPart::kSystem);
}

INSTANTIATE_TEST_SUITE_P(
    Values, ChangedValueTest,
    testing::Values(
        ValuePair{"Current time: ", "2026-08-21 14:32:07", "2026-08-21 14:32:19",
                  DivergenceClass::kTimestamp},
        ValuePair{"Current time: ", "2026-08-21T14:32:07.120Z", "2026-08-21T15:02:44.981Z",
                  DivergenceClass::kTimestamp},
        ValuePair{"Now: ", "Fri, 21 Aug 2026 14:32:07 GMT", "Sat, 22 Aug 2026 09:11:55 GMT",
                  DivergenceClass::kTimestamp},
        ValuePair{"Now: ", "August 21, 2026 at 2:32 PM", "August 21, 2026 at 2:41 PM",
                  DivergenceClass::kTimestamp},
        ValuePair{"It is ", "14:32:07", "14:33:12", DivergenceClass::kTimestamp},
        ValuePair{"ts=", "1787322727", "1787322801", DivergenceClass::kTimestamp},
        ValuePair{"ts=", "1787322727123", "1787322801456", DivergenceClass::kTimestamp},
        ValuePair{"Today is ", "2026-08-21", "2026-08-22", DivergenceClass::kDate},
        ValuePair{"Today is ", "Friday, August 21, 2026", "Monday, August 24, 2026", DivergenceClass::kDate},
        ValuePair{"Today is ", "21 August 2026", "3 September 2026", DivergenceClass::kDate},
        ValuePair{"Today is ", "21/08/2026", "22/08/2026", DivergenceClass::kDate},
        ValuePair{"Request ", "550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440001",
                  DivergenceClass::kUuid},
        ValuePair{"trace: ", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "9c858901-8a57-4791-81fe-4c455b099bc9",
                  DivergenceClass::kUuid},
        ValuePair{"You answer question number ", "9", "10", DivergenceClass::kCounter},
        ValuePair{"turn ", "17", "18", DivergenceClass::kCounter},
        ValuePair{"seed ", "8391047221", "5510938472", DivergenceClass::kNonce},
        ValuePair{"nonce: ", "a8f3b2c9d1", "71bc09ffe2", DivergenceClass::kNonce},
        ValuePair{"[trace ", "Zx8Qk2LqpT", "m4HwY7rBd0", DivergenceClass::kNonce},
        ValuePair{"You are helping ", "Maria Gonzalez", "Tom Baker", DivergenceClass::kUserValue},
        ValuePair{"Account of ", "maria@example.com", "tom.baker@example.org", DivergenceClass::kUserValue},
        ValuePair{"The tone is ", "formal", "relaxed", DivergenceClass::kOther}));

TEST(DivergenceTest, TimestampInFront_WhatIfIsAllButTheTime) {
  const std::string rest = "\nYou are a shop assistant.\n" + Handbook(40);
  const std::string a = SystemChat("It is 14:32:07." + rest, "Where is my parcel?");
  const std::string b = SystemChat("It is 14:32:19." + rest, "Is the seal needed?");
  const auto found = FindDivergence(a, b);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->offset, std::string("system\x1FIt is 14:32:").size());
  EXPECT_EQ(b.substr(found->now.begin, found->now.length()), "14:32:19");
  // All but the seconds and the new question (whose end of record is its own).
  const size_t question = std::string("Is the seal needed?\x1E").size();
  EXPECT_EQ(found->what_if_bytes, b.size() - 2 - question);
  EXPECT_EQ(found->now_shape, "99:99:99");
}

TEST(DivergenceTest, ThreeValuesFarFromEachOther_WhatIfGoesOnOverEach) {
  const auto prompt = [](const char* time, const char* id, const char* n) {
    return SystemChat("Time " + std::string(time) + "\n" + Handbook(5) + "id " + id + "\n" + Handbook(5, 5) +
                      "n " + n + "\n" + Handbook(5, 10));
  };
  const std::string b = prompt("10:00:01", "a8f3b2c9d1", "2");
  const auto found = FindDivergence(prompt("09:59:59", "71bc09ffe2", "1"), b);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, DivergenceClass::kTimestamp);
  EXPECT_GE(found->what_if_bytes, b.size() - 8 - 10 - 1 - 4);
  EXPECT_LT(found->what_if_bytes, b.size() - 10);
}

TEST(DivergenceTest, GoesOnWhereTheEarlierEnded_IsNone) {
  const Messages turn = {{"system", Handbook(10)}, {"user", "Hello, I need help."}};
  Messages next = turn;
  next.insert(next.end(), {{"assistant", "Of course."}, {"user", "My parcel is late."}});
  EXPECT_FALSE(FindDivergence(ChatPrompt(turn), ChatPrompt(next)));
  EXPECT_FALSE(FindDivergence(ChatPrompt(next), ChatPrompt(turn)));
  EXPECT_FALSE(FindDivergence(ChatPrompt(turn), ChatPrompt(turn)));
}

TEST(DivergenceTest, OtherQuestionBehindTheSamePrompt_IsNone) {
  EXPECT_FALSE(FindDivergence(SystemChat(Handbook(20), "Where is my parcel? It was sent on 2026-01-02."),
                              SystemChat(Handbook(20), "May I return a jacket? I bought it on 2026-03-04.")));
}

TEST(DivergenceTest, TwoPromptsThatShareOneDocumentOfThree_AreNone) {
  const auto prompt = [](int x, int y, int z) {
    return ChatPrompt({{"user", Handbook(8, x) + Handbook(8, y) + Handbook(8, z) + "What does it say?"}});
  };
  EXPECT_FALSE(FindDivergence(prompt(0, 100, 200), prompt(300, 100, 400)));
}

TEST(DivergenceTest, QuestionBeforeHandbook_IsVariableFirst) {
  for (const char* role : {"user", "system"}) {
    const auto ask = [&](const std::string& question) {
      return ChatPrompt({{role, question}, {"user", Handbook(40)}});
    };
    const auto found = FindDivergence(ask("How many days do I have to return a pair of shoes?"),
                                      ask("Who pays for the parcel if the lamp was broken on arrival?"));
    ASSERT_TRUE(found) << role;
    EXPECT_EQ(found->cause, DivergenceClass::kVariableFirst) << role;
    EXPECT_GT(found->what_if_bytes, Handbook(40).size());
  }
}

constexpr const char* kToolA =
    R"({"type":"function","function":{"name":"search","description":"Search the shop's articles by words.","parameters":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}}}}})";
constexpr const char* kToolB =
    R"({"type":"function","function":{"name":"refund","description":"Pay an order back, in part or whole.","parameters":{"type":"object","properties":{"order":{"type":"string"},"cents":{"type":"integer"}}}}})";
constexpr const char* kToolC =
    R"({"type":"function","function":{"name":"track","description":"Where a parcel is now and when it comes.","parameters":{"type":"object","properties":{"parcel":{"type":"string"}}}}})";

std::string List(const std::vector<std::string>& tools) {
  std::string list;
  for (const std::string& tool : tools) list += (list.empty() ? "[" : ",") + tool;
  return list + "]";
}
std::optional<Divergence> Tools(const std::string& x, const std::string& y) {
  const Messages messages = {{"system", Handbook(10)}, {"user", "Hi"}};
  return FindDivergence(ChatPrompt(messages, x), ChatPrompt(messages, y));
}

TEST(DivergenceTest, Tools_MovedAddedRemovedOrWrittenOtherwise) {
  const std::string all = List({kToolA, kToolB, kToolC});
  const auto moved = Tools(all, List({kToolC, kToolA, kToolB}));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->cause, DivergenceClass::kToolsReordered);
  EXPECT_EQ(moved->place.part, PromptPart::kTools);
  EXPECT_EQ(moved->what_if_bytes, ChatPrompt({{"system", Handbook(10)}, {"user", "Hi"}}, all).size());
  for (const auto& fewer : {List({kToolA, kToolB}), List({kToolB, kToolC}), std::string()}) {
    ASSERT_TRUE(Tools(all, fewer)) << fewer;
    EXPECT_EQ(Tools(all, fewer)->cause, DivergenceClass::kToolsChanged) << fewer;
    EXPECT_EQ(Tools(fewer, all)->cause, DivergenceClass::kToolsChanged) << fewer;
  }
  std::string spaced = all;
  spaced.insert(1, " ");
  EXPECT_EQ(Tools(all, spaced)->cause, DivergenceClass::kWhitespace);
  const std::string other_keys =
      R"([{"function":{"parameters":{"properties":{"parcel":{"type":"string"}},"type":"object"},"name":"track","description":"Where a parcel is now and when it comes."},"type":"function"}])";
  EXPECT_EQ(Tools(List({kToolC}), other_keys)->cause, DivergenceClass::kKeyOrder);
}

TEST(DivergenceTest, TimeInAToolsDescription_IsATimestampInTools) {
  const std::string with_time =
      R"([{"name":"now","description":"It is 14:32:07 now."},)" + std::string(kToolA) + "]";
  std::string later = with_time;
  later.replace(later.find("14:32:07"), 8, "15:01:44");
  const auto found = Tools(with_time, later);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, DivergenceClass::kTimestamp);
  EXPECT_EQ(found->place.part, PromptPart::kTools);
}

TEST(DivergenceTest, JsonInAMessage_KeysOrSpaceOrElements) {
  const auto with = [](const std::string& json) {
    return SystemChat("Profile: " + json + "\n" + Handbook(10));
  };
  const std::string json = R"({"plan":"gold","since":"2019","tags":["new","vip"]})";
  EXPECT_EQ(FindDivergence(with(json), with(R"({"since":"2019","plan":"gold","tags":["new","vip"]})"))->cause,
            DivergenceClass::kKeyOrder);
  EXPECT_EQ(
      FindDivergence(with(json), with(R"({"plan": "gold","since":"2019","tags":["new", "vip"]})"))->cause,
      DivergenceClass::kWhitespace);
  EXPECT_EQ(FindDivergence(with(R"([{"d":1},{"d":2},{"d":3}])"), with(R"([{"d":3},{"d":1},{"d":2}])"))->cause,
            DivergenceClass::kDocumentsReordered);
}

TEST(DivergenceTest, LineEndsAndBlanks_AreWhitespace) {
  EXPECT_EQ(
      FindDivergence(SystemChat("Rules:\n" + Handbook(10)), SystemChat("Rules:\r\n" + Handbook(10)))->cause,
      DivergenceClass::kWhitespace);
  EXPECT_EQ(
      FindDivergence(SystemChat("Rules:  one. " + Handbook(10)), SystemChat("Rules: one. " + Handbook(10)))
          ->cause,
      DivergenceClass::kWhitespace);
}

TEST(DivergenceTest, DocumentsInOtherOrder_AreReordered) {
  const auto prompt = [](std::vector<int> order, const char* question) {
    std::string text = "Context:\n";
    int number = 1;
    for (const int doc : order) text += "[" + std::to_string(number++) + "] " + Handbook(4, doc * 50);
    return ChatPrompt({{"user", text + "\nQuestion: " + question}});
  };
  const auto found =
      FindDivergence(prompt({1, 2, 3, 4}, "May I return it?"), prompt({3, 1, 4, 2}, "Who pays?"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, DivergenceClass::kDocumentsReordered);
}

TEST(DivergenceTest, HistoryCut_WithOrWithoutSummary_IsTruncation) {
  Messages full = {{"system", Handbook(4)}};
  for (int i = 0; i < 6; ++i) {
    full.push_back({"user", "Question " + std::to_string(i) + ": " + Handbook(2, 20 * i)});
    full.push_back({"assistant", "Answer " + std::to_string(i) + ": " + Handbook(2, 20 * i + 10)});
  }
  Messages cut = full;
  cut.erase(cut.begin() + 1, cut.begin() + 3);
  cut.push_back({"user", "And then?"});
  const auto found = FindDivergence(ChatPrompt(full), ChatPrompt(cut));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cause, DivergenceClass::kHistoryTruncated);
  EXPECT_EQ(found->now.begin, ChatPrompt({full[0]}).size());
  const size_t shared_start = found->offset - found->now.begin;  // "user\x1FQuestion " of either
  EXPECT_EQ(found->what_if_bytes, ChatPrompt(cut).size() - ChatPrompt({cut.back()}).size() + shared_start);
  cut.insert(cut.begin() + 1, {"system", "Summary: the customer asked about items."});
  EXPECT_EQ(FindDivergence(ChatPrompt(full), ChatPrompt(cut))->cause, DivergenceClass::kHistoryTruncated);
}

TEST(DivergenceTest, HeaderThatIsNotRenderedAgain_IsThePromptHeader_PFX_17) {
  const std::string front = "<system>\n" + Handbook(20) + "<user>\nHello\n<assistant>\n";
  const std::string a = front + "<think>\n";
  const std::string b = front + "OK\n<user>\nGo on\n<assistant>\n<think>\n";
  const auto found = FindDivergence(a, b);
  ASSERT_TRUE(found);
  EXPECT_EQ(ClassName(found->cause), "generation prompt / reasoning header");
  EXPECT_EQ(found->offset, front.size());
  EXPECT_EQ(found->what_if_bytes, a.size());
  EXPECT_EQ(found->earlier.length(), std::string("<think>\n").size());
}

TEST(DivergenceTest, Shape_TellsKindsOfCharactersAlone) {
  EXPECT_EQ(ShapeOf("2026-08-21 aB"), "9999-99-99 aA");
  EXPECT_EQ(ShapeOf("abcdefghij!"), "a{10}!");
  EXPECT_EQ(ShapeOf("é\n"), "aa ");
  EXPECT_LE(ShapeOf(std::string(50, 'a') + Handbook(5)).size(), 64u);
}

}  // namespace
}  // namespace kvring::router
