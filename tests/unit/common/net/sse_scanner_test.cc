#include "common/net/sse_scanner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/random.h"

namespace kvring::net {
namespace {

using Events = std::vector<std::string>;

Events ScanPieces(const std::vector<std::string>& pieces) {
  SseScanner scanner;
  Events events;
  for (const std::string& piece : pieces) {
    // A copy that dies at once: a view kept across feeds would be caught by the sanitizer.
    const auto bytes = std::make_unique<std::string>(piece);
    scanner.Feed(*bytes, [&](const SseEvent& event) {
      events.push_back(std::string(event.type) + "|" + std::string(event.data));
    });
  }
  return events;
}

std::vector<std::string> Cut(std::string_view bytes, size_t at) {
  return {std::string(bytes.substr(0, at)), std::string(bytes.substr(at))};
}

TEST(SseScanner, PRX01_CharacterCutAtEveryOffset_DataIsWhole) {
  const std::string json = "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\U0001F600\u65e5\"}}]}";
  const std::string wire = "data: " + json + "\n\n";
  for (size_t at = 0; at <= wire.size(); ++at) EXPECT_EQ(ScanPieces(Cut(wire, at)), Events{"|" + json}) << at;
}

TEST(SseScanner, PRX02_EveryLegalFraming_GivesTheSameEvents) {
  const Events three{"|{\"a\":1}", "|{\"b\":2}", "|[DONE]"};
  const std::string framings[] = {
      "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n",
      "data: {\"a\":1}\r\n\r\ndata: {\"b\":2}\r\n\r\ndata: [DONE]\r\n\r\n",
      "data: {\"a\":1}\r\rdata: {\"b\":2}\r\rdata: [DONE]\r\r",
      "data:{\"a\":1}\n\ndata:{\"b\":2}\n\ndata:[DONE]\n\n",
      ": note\n\ndata: {\"a\":1}\n: note\n\n: a\n\n\ndata: {\"b\":2}\nid: 7\nretry: 3\n\ndata: [DONE]\n\n",
      "\xEF\xBB\xBF"
      "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n",
  };
  for (const std::string& wire : framings) {
    for (size_t at = 0; at <= wire.size(); ++at)
      EXPECT_EQ(ScanPieces(Cut(wire, at)), three) << wire << " cut at " << at;
  }
}

TEST(SseScanner, PRX02_DataLinesJoinWithOneLf) {
  EXPECT_EQ(ScanPieces({"data: a\ndata: b\n\n"}), Events{"|a\nb"});
  EXPECT_EQ(ScanPieces({"data\ndata\n\n"}), Events{"|\n"});
  EXPECT_EQ(ScanPieces({"data:  a\n\n"}), Events{"| a"});
  EXPECT_EQ(ScanPieces({"event: x\ndata: a\n\ndata: b\n\n"}), (Events{"x|a", "|b"}));
  EXPECT_EQ(ScanPieces({"event: x\n\ndata: b\n\n"}), Events{"|b"});  // without data nothing is dispatched
}

TEST(SseScanner, PRX02_UnterminatedEvent_IsNotDispatched) {
  EXPECT_EQ(ScanPieces({"data: a\n\ndata: b\n\ndata: c"}), (Events{"|a", "|b"}));
  EXPECT_EQ(ScanPieces({"data: a\n\ndata: b\n\ndata: c\n"}), (Events{"|a", "|b"}));
}

TEST(SseScanner, PRX02_BomOnlyAtStart_AndU2028IsNoLineEnd) {
  EXPECT_EQ(ScanPieces({"data: a\n\n\xEF\xBB\xBF"
                        "data: b\n\n"}),
            Events{"|a"});  // a field of another name
  EXPECT_EQ(ScanPieces({"data: a\u2028b\n\n"}), Events{"|a\u2028b"});
  EXPECT_EQ(ScanPieces({"\xEF\xBB", "data: a\n\n"}), Events{});  // half a BOM is text
}

// PRX-03: a 60-event stream in any re-chunking gives one list.
TEST(SseScanner, PRX03_AnyChunking_GivesTheSameEvents) {
  std::string wire;
  Events expected;
  for (int i = 0; i < 60; ++i) {
    const std::string json = "{\"choices\":[{\"delta\":{\"content\":\"t" + std::to_string(i) + "\u65e5\"}}]}";
    wire += (i % 3 == 0 ? ": c\r\n" : "") + ("data: " + json) + (i % 2 == 0 ? "\n\n" : "\r\n\r\n");
    expected.push_back("|" + json);
  }
  EXPECT_EQ(ScanPieces({wire}), expected);
  std::vector<std::string> single;
  for (const char c : wire) single.emplace_back(1, c);
  EXPECT_EQ(ScanPieces(single), expected);
  Random random(7);
  for (int run = 0; run < 200; ++run) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < wire.size();) {
      const size_t n = 1 + random.Below(random.Below(2) ? 5 : 400);
      pieces.push_back(wire.substr(at, n));
      at += n;
    }
    ASSERT_EQ(ScanPieces(pieces), expected) << run;
  }
}

TEST(SseScanner, PRX09_BrokenJsonIsJustAnEvent) {
  EXPECT_EQ(ScanPieces({"data: {\"bro\n\ndata: {\"ok\":1}\n\n"}), (Events{"|{\"bro", "|{\"ok\":1}"}));
}

TEST(SseScanner, AtBorder_OnlyBetweenEvents) {
  const std::string wire = "data: a\n\n: c\n\ndata: b\r\n\r\n";
  SseScanner scanner;
  std::string seen;
  for (const char& c : wire) {
    scanner.Feed(std::string_view(&c, 1), [](const SseEvent&) {});
    seen += scanner.at_border() ? '1' : '0';
  }
  EXPECT_EQ(seen,
            "000000001"
            "00001"
            "00000000011");
}

TEST(SseScanner, OversizedEvent_IsSkippedAndCounted_MemoryBounded) {
  SseScanner scanner(100);
  Events events;
  const auto on_event = [&](const SseEvent& event) { events.emplace_back(event.data); };
  scanner.Feed("data: " + std::string(50, 'x'), on_event);
  for (int i = 0; i < 10; ++i) scanner.Feed(std::string(50, 'x'), on_event);
  scanner.Feed("\n\ndata: ok\n\n", on_event);
  for (int i = 0; i < 10; ++i) scanner.Feed("data: " + std::string(50, 'y') + "\n", on_event);
  scanner.Feed("\ndata: ok2\n\n", on_event);
  EXPECT_EQ(events, (Events{"ok", "ok2"}));
  EXPECT_EQ(scanner.oversized_events(), 2u);
}

}  // namespace
}  // namespace kvring::net
