#include "sim/workload.h"

#include <gtest/gtest.h>

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
