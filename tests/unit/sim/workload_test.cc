#include "sim/workload.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvring::sim {
namespace {

TEST(Workload, Chat_TurnsWaitForEachOther) {
  const Trace trace = MakeWorkload("chat:sessions=3,turns=4,system=100,persona=0,message=7", 1).value();
  ASSERT_EQ(trace.requests.size(), 12U);
  for (size_t i = 0; i < 12; ++i) {
    const TraceRequest& request = trace.requests[i];
    EXPECT_EQ(request.after, i % 4 == 0 ? -1 : static_cast<int64_t>(i) - 1);
    EXPECT_EQ(request.continues, i % 4 != 0);
    EXPECT_EQ(request.session, i / 4 + 1);
  }
  EXPECT_EQ(Totals(trace).own_prompt_tokens, 3 * (100 + 200) + 12 * 7);
  // All say the same first, then each something of its own.
  EXPECT_EQ(trace.spans_of(trace.requests[0])[0].content, trace.spans_of(trace.requests[4])[0].content);
  EXPECT_NE(trace.spans_of(trace.requests[0])[2].content, trace.spans_of(trace.requests[4])[2].content);
}

TEST(Workload, SameSeed_SameTrace) {
  const Trace a = MakeChat({}, 4), b = MakeChat({}, 4), c = MakeChat({}, 5);
  EXPECT_EQ(a.requests[1000].arrival, b.requests[1000].arrival);
  EXPECT_NE(a.requests[1000].arrival, c.requests[1000].arrival);
}

TEST(Workload, BadDescription_NamesTheField) {
  const auto error = [](const char* text) { return std::string(MakeWorkload(text, 1).status().message()); };
  EXPECT_NE(error("chess").find("chess is unknown"), std::string::npos);
  EXPECT_NE(error("chat:colour=3").find("colour is unknown"), std::string::npos);
  EXPECT_NE(error("chat:turns=0").find("turns=0"), std::string::npos);
  EXPECT_NE(error("chat:turns=1e3").find("turns=1e3"), std::string::npos);
  EXPECT_NE(error("prefixes:rate=0").find("rate=0"), std::string::npos);
  EXPECT_NE(error("prefixes:rate=nan").find("rate=nan"), std::string::npos);
  EXPECT_NE(error("rag:swing=1.5").find("swing must be at most 1"), std::string::npos);
}

TEST(Workload, EveryName_MakesATrace) {
  for (const std::string_view name : WorkloadNames()) EXPECT_TRUE(MakeWorkload(name, 1).ok()) << name;
}

// Zipf with exponent 1 over 100 groups: the first has 1 / H(100) = 0.193 of them.
TEST(Workload, Zipf_FirstGroupHasItsShare) {
  const Trace trace = MakeWorkload("zipf:groups=100,requests=20000", 2).value();
  const uint64_t first = MakePrefixes({.requests = 1, .groups = 1}, 1).spans[0].content;
  double share = 0;
  for (const TraceRequest& request : trace.requests) share += trace.spans_of(request)[0].content == first;
  EXPECT_NEAR(share / 20000, 0.193, 0.01);
}

TEST(Workload, ClosedLoop_EachClientWaitsForItsLast) {
  const Trace chat = MakeWorkload("chat:sessions=6,turns=3,clients=2", 1).value();
  EXPECT_EQ(chat.requests[3].after, -1);
  EXPECT_EQ(chat.requests[6].after, 2);  // the third conversation begins after the first's last turn
  EXPECT_FALSE(chat.requests[6].continues);
  EXPECT_EQ(chat.requests[9].after, 5);
  const Trace single = MakeWorkload("prefixes:requests=5,clients=2", 1).value();
  EXPECT_EQ(single.requests[4].after, 2);
}

// Twice the period's high half as many as its low half, and more: (1 + 2/pi · 0.9) over (1 - 2/pi · 0.9).
TEST(Workload, Swing_MovesTheRate) {
  const Trace trace = MakeWorkload("prefixes:requests=20000,rate=10,swing=0.9,period=100", 4).value();
  double high = 0, low = 0;
  for (const TraceRequest& request : trace.requests)
    ++(std::fmod(ToSeconds(request.arrival), 100) < 50 ? high : low);
  EXPECT_NEAR(high / low, 3.68, 0.25);
  EXPECT_NEAR(ToSeconds(trace.requests.back().arrival), 2000, 100);
}

TEST(Workload, Rag_SharesAsFarAsTheSameDocuments) {
  const Trace trace = MakeWorkload("rag:documents=2,picks=2,requests=50", 4).value();
  const auto spans = trace.spans_of(trace.requests[0]);
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans[0].content, trace.spans_of(trace.requests[1])[0].content);
  EXPECT_NE(spans[3].content, trace.spans_of(trace.requests[1])[3].content);
}

TEST(Trace, Scale_CopiesShareNothing) {
  Trace trace = MakeChat({.sessions = 2, .turns = 2}, 1);
  const Duration second = trace.requests[2].arrival;
  Scale(trace, 3);
  ASSERT_EQ(trace.requests.size(), 12U);
  EXPECT_EQ(trace.requests[3].after, 0);  // the second turn of each copy waits for its own first
  EXPECT_EQ(trace.requests[5].after, 2);
  EXPECT_EQ(trace.requests[8].arrival, second);
  const PromptSpan span = trace.spans_of(trace.requests[0])[0];
  EXPECT_EQ(Trace::ContentOf(trace.requests[0], span), span.content);
  EXPECT_NE(Trace::ContentOf(trace.requests[1], span), Trace::ContentOf(trace.requests[2], span));
}

TEST(History, Grain_KeepsWholeBlocks) {
  History coarse, other;
  coarse.Append({1, 512}, 8);
  coarse.Append({2, 500}, 8);
  EXPECT_EQ(coarse.ids.size(), 127U);  // ceil(1012 / 8)
  other.Append({1, 512}, 8);
  EXPECT_TRUE(std::equal(other.ids.begin(), other.ids.end(), coarse.ids.begin()));
  EXPECT_EQ(coarse.tokens, 1012);
}

TEST(Trace, Tokens_EqualContentBeginsAlike) {
  std::vector<TokenId> a, b;
  AppendTokens({42, 10}, a);
  AppendTokens({42, 20}, b);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_EQ(b.size(), 20U);
  AppendTokens({43, 10}, a);
  EXPECT_NE(a[0], a[10]);
}

TEST(Trace, SpeedUp_LeavesPausesAlone) {
  Trace trace = MakeChat({.sessions = 2, .turns = 2}, 1);
  const Duration second = trace.requests[2].arrival, pause = trace.requests[1].arrival;
  SpeedUp(trace, 4);
  EXPECT_EQ(trace.requests[2].arrival, Duration(second.count() / 4));
  EXPECT_EQ(trace.requests[1].arrival, pause);
}

}  // namespace
}  // namespace kvring::sim
