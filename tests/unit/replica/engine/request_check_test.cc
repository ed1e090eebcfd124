#include "replica/engine/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kvring::replica {
namespace {

RequestLimits Limit(int32_t tokens, bool cap = false) {
  return {.vocab_size = 100, .max_tokens_per_sequence = tokens, .max_choices = 8, .cap_max_tokens = cap};
}

EngineRequest Prompt(int32_t length, std::optional<int32_t> max_tokens) {
  return {.prompt = std::vector<TokenId>(length, 1), .max_tokens = max_tokens};
}

TEST(RequestCheckTest, TooLong_OutOfRangeWithAllCounts_SMP09) {
  const absl::Status status = CheckRequest(Prompt(3120, 1000), Limit(4097));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  for (const char* part : {"4097", "4120", "3120", "1000"}) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << part;
  }
  EXPECT_EQ(CheckRequest(Prompt(5000, {}), Limit(4097)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(CheckRequest(Prompt(4097, {}), Limit(4097)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(CheckRequest(Prompt(4096, 1), Limit(4097)).ok());
  EXPECT_EQ(CheckRequest(Prompt(1, INT32_MAX), Limit(4097)).code(), absl::StatusCode::kOutOfRange);
}

TEST(RequestCheckTest, NoMaxTokens_AsManyAsFit_SCH07) {
  EXPECT_EQ(ResolveMaxTokens(Prompt(100, {}), Limit(128)), 28);
  EXPECT_EQ(ResolveMaxTokens(Prompt(127, {}), Limit(128)), 1);
  EXPECT_TRUE(CheckRequest(Prompt(127, {}), Limit(128)).ok());
  EXPECT_EQ(CheckRequest(Prompt(128, {}), Limit(128)).code(), absl::StatusCode::kOutOfRange);
}

TEST(RequestCheckTest, CapMode_ShortensTheOutput_KVB14) {
  EXPECT_EQ(CheckRequest(Prompt(150, 50), Limit(160)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(CheckRequest(Prompt(150, 50), Limit(160, true)).ok());
  EXPECT_EQ(ResolveMaxTokens(Prompt(150, 50), Limit(160, true)), 10);
  EXPECT_EQ(CheckRequest(Prompt(161, 5), Limit(160, true)).code(), absl::StatusCode::kOutOfRange);
}

TEST(RequestCheckTest, MaxTokens_ZeroAllowed_NegativeNot_SMP04) {
  EXPECT_TRUE(CheckRequest(Prompt(10, 0), Limit(10)).ok());
  EXPECT_EQ(CheckRequest(Prompt(10, -1), Limit(100)).code(), absl::StatusCode::kInvalidArgument);
}

struct BadField {
  const char* field;
  void (*spoil)(EngineRequest&);
};

TEST(RequestCheckTest, FieldOutOfRange_InvalidArgumentNamesIt) {
  const BadField fields[] = {
      {"prompt", [](EngineRequest& r) { r.prompt.clear(); }},
      {"prompt", [](EngineRequest& r) { r.prompt[3] = 100; }},
      {"prompt", [](EngineRequest& r) { r.prompt[3] = -1; }},
      {"eos_tokens", [](EngineRequest& r) { r.eos_tokens = {100}; }},
      {"logit_bias",
       [](EngineRequest& r) {
         r.sampling.logit_bias = {{-1, 1.0f}};
       }},
      {"logit_bias",
       [](EngineRequest& r) {
         r.sampling.logit_bias = {{1, NAN}};
       }},
      {"temperature", [](EngineRequest& r) { r.sampling.temperature = -0.1f; }},
      {"temperature", [](EngineRequest& r) { r.sampling.temperature = NAN; }},
      {"temperature", [](EngineRequest& r) { r.sampling.temperature = INFINITY; }},
      {"cache_retention.ttl_s",
       [](EngineRequest& r) {
         r.retention = {Retention::kHigh, {}};
       }},
      {"cache_retention.ttl_s",
       [](EngineRequest& r) {
         r.retention = {Retention::kPinned, std::chrono::hours(25)};
       }},
      {"cache_retention.ttl_s",
       [](EngineRequest& r) {
         r.retention = {Retention::kLow, std::chrono::hours(1)};
       }},
      {"top_k", [](EngineRequest& r) { r.sampling.top_k = -1; }},
      {"top_p", [](EngineRequest& r) { r.sampling.top_p = 0; }},
      {"top_p", [](EngineRequest& r) { r.sampling.top_p = 1.01f; }},
      {"min_p", [](EngineRequest& r) { r.sampling.min_p = 1; }},
      {"frequency_penalty", [](EngineRequest& r) { r.sampling.frequency_penalty = 2.1f; }},
      {"presence_penalty", [](EngineRequest& r) { r.sampling.presence_penalty = NAN; }},
      {"min_tokens", [](EngineRequest& r) { r.sampling.min_tokens = -1; }},
      {"logprobs", [](EngineRequest& r) { r.sampling.logprobs = 21; }},
      {"n must", [](EngineRequest& r) { r.n = 0; }},
      {"n must", [](EngineRequest& r) { r.n = 9; }},
  };
  for (const BadField& field : fields) {
    EngineRequest request = Prompt(10, 5);
    ASSERT_TRUE(CheckRequest(request, Limit(100)).ok());
    field.spoil(request);
    const absl::Status status = CheckRequest(request, Limit(100));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field.field;
    EXPECT_NE(std::string(status.message()).find(field.field), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace kvring::replica
