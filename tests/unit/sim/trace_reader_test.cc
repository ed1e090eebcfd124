#include "sim/io/trace_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/unit/sim/trace_fixture.h"

namespace kvring::sim {
namespace {

constexpr const char* kTwoLines =
    R"({"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]})"
    "\n"
    R"({"timestamp": 1500, "input_length": 1100, "output_length": 0, "hash_ids": [7, 9], "session_id": "s"})"
    "\n";

absl::StatusOr<Trace> ReadText(const std::string& text) {
  return ReadTrace(WriteTestFile("trace.jsonl", text), {});
}

void ExpectError(const std::string& text, const std::string& words) {
  const auto trace = ReadText(text);
  ASSERT_FALSE(trace.ok()) << text;
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(trace.status().message().find(words), absl::string_view::npos) << trace.status();
}

TEST(TraceReader, MooncakeLines_BecomeSpansOfBlocks) {
  const auto trace = ReadText(kTwoLines);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->block_tokens, 512);
  const auto first = trace->spans_of(trace->requests[0]);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1].tokens, 488);  // a part-filled last block
  const auto second = trace->spans_of(trace->requests[1]);
  ASSERT_EQ(second.size(), 3U);  // the tail has no id and is nobody else's
  EXPECT_EQ(second[0].content, first[0].content);
  EXPECT_EQ(second[2].tokens, 76);
  EXPECT_EQ(trace->requests[1].arrival, FromMillis(1500));
  EXPECT_EQ(trace->requests[1].output_tokens, 0);
  EXPECT_NE(trace->requests[1].session, 0U);
  EXPECT_EQ(trace->requests[0].session, 0U);
}

TEST(TraceReader, Compressed_SameTrace) {
  const std::string text = kTwoLines;
  std::string zstd(ZSTD_compressBound(text.size()), 0);
  zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), text.data(), text.size(), 3));
  EXPECT_EQ(ReadText(zstd)->requests.size(), 2U);

  const std::string path = testing::TempDir() + "trace.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  EXPECT_EQ(ReadTrace(path, {})->requests.size(), 2U);

  const auto cut = ReadText(zstd.substr(0, zstd.size() - 3));
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kDataLoss) << cut.status();
}

TEST(TraceReader, Header_SaysUnits) {
  const auto trace =
      ReadText(R"({"kvring_trace": {"time_unit": "s", "block_tokens": 16}})"
               "\n"
               R"({"timestamp": 1.5, "input_length": 32, "output_length": 1, "hash_ids": [1, 2]})");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests[0].arrival, FromMillis(1500));
  EXPECT_EQ(trace->block_tokens, 16);
  ExpectError(R"({"kvring_trace": {"time_unit": "h"}})", ":1: kvring_trace.time_unit");
}

// SIM-06: prompts without hashes share nothing, and never all become one.
TEST(TraceReader, NoHashes_EachPromptIsItsOwn_SIM_06) {
  const auto trace = ReadText(
      "{\"timestamp\": 0, \"input_length\": 5120, \"output_length\": 1}\n"
      "{\"timestamp\": 1, \"input_length\": 5120, \"output_length\": 1}\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_NE(trace->spans[0].content, trace->spans[1].content);
}

TEST(TraceReader, AzureCsv_LengthsOnly) {
  const auto trace = ReadText(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 18:15:50.9951690,396,109\r\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[1].arrival, Duration(4'314'579'000));
  EXPECT_NE(trace->spans[0].content, trace->spans[1].content);
}

TEST(TraceReader, TimeUnit_OfTheCaller) {
  const std::string path = WriteTestFile("seconds.jsonl", kTwoLines);
  EXPECT_EQ(ReadTrace(path, {.time_unit = "s"})->requests[1].arrival, FromSeconds(1500));
  EXPECT_FALSE(ReadTrace(path, {.time_unit = "h"}).ok());
}

TEST(TraceReader, Parent_IsWaitedFor) {
  const std::string good = kTwoLines;
  const auto trace = ReadText(good + R"({"parent": 1, "delay": 250, "input_length": 5, "output_length": 1})");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests[2].after, 1);
  EXPECT_EQ(trace->requests[2].arrival, FromMillis(250));
  EXPECT_FALSE(trace->requests[2].continues);
  ExpectError(good + R"({"parent": 2, "input_length": 5, "output_length": 1})", ":3: parent must be");
  ExpectError(good + R"({"parent": 0, "delay": -1, "input_length": 5, "output_length": 1})",
              ":3: delay must");
}

// PFX: what separates caches separates contents.
TEST(TraceReader, ModelAndTenant_ShareNothing) {
  const auto line = [](const char* more) {
    return std::string(R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [7])") +
           more + "}\n";
  };
  const auto trace = ReadText(line("") + line(R"(, "tenant": "a")") + line(R"(, "tenant": "b")") +
                              line(R"(, "model": "a")") + line(R"(, "tenant": "a")"));
  ASSERT_TRUE(trace.ok()) << trace.status();
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(trace->spans[i].content, trace->spans[i - 1].content);
  EXPECT_NE(trace->spans[3].content, trace->spans[1].content);
  EXPECT_EQ(trace->spans[4].content, trace->spans[1].content);
  ExpectError(line(R"(, "tenant": 3)"), ":1: tenant must be a string");
}

TEST(TraceReader, BadLine_NamesFileLineAndField) {
  ExpectError("", "no requests");
  ExpectError("nonsense", "trace.jsonl:1: not a JSON object");
  ExpectError(R"({"timestamp": -1, "input_length": 5, "output_length": 1})", ":1: timestamp");
  ExpectError(R"({"timestamp": "0", "input_length": 5, "output_length": 1})", "timestamp must be a number");
  ExpectError(R"({"timestamp": 0, "input_length": 0, "output_length": 1})", "input_length");
  ExpectError(R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})", "input_length");
  ExpectError(R"({"timestamp": 0, "input_length": 5})", "output_length");
  ExpectError(R"({"timestamp": 0, "input_length": 9999999999, "output_length": 1})", "input_length");
  ExpectError(R"({"timestamp": 0, "input_length": 2000, "output_length": 1, "hash_ids": [1]})",
              "hash_ids has 1 ids, but input_length 2000 is 4 blocks of 512");
  ExpectError(R"({"timestamp": 0, "input_length": 500, "output_length": 1, "hash_ids": ["a"]})", "hash_ids");
  ExpectError(R"({"timestamp": 0, "input_length": 500, "output_length": 1, "session_id": 3})", "session_id");
  const std::string good = kTwoLines;
  ExpectError(good + R"({"timestamp": 1, "input_length": 5, "output_length": 1})",
              ":3: timestamp is before that of a line above");
  ExpectError(good + R"({"timestamp": 2000, "input_length": 1000, "output_length": 1, "hash_ids": [9, 8]})",
              "id 9 follows nothing here and id 7 in line 2");
  EXPECT_EQ(ReadTrace("/nowhere", {}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvring::sim
