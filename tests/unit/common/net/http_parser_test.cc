#include "common/net/http_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "common/random.h"

namespace kvring::net {
namespace {

// The status of the fault, 0 when the head is fine, -1 when it is incomplete.
int RequestStatus(std::string_view bytes, RequestHeadView* out = nullptr, HeadLimits limits = {}) {
  HeadScanner scanner(limits);
  switch (scanner.Scan(bytes)) {
    case HeadScanner::State::kIncomplete:
      return -1;
    case HeadScanner::State::kFault:
      return scanner.fault().status;
    case HeadScanner::State::kComplete:
      break;
  }
  RequestHeadView view;
  return ParseRequestHead(bytes.substr(0, scanner.head_bytes()), out ? *out : view).status;
}

int ResponseStatus(std::string_view bytes, ResponseHeadView& out, bool to_head = false) {
  HeadScanner scanner;
  if (scanner.Scan(bytes) != HeadScanner::State::kComplete) return -1;
  return ParseResponseHead(bytes.substr(0, scanner.head_bytes()), to_head, out).status;
}

std::string Get(std::string_view lines) {
  return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(lines) + "\r\n";
}

TEST(RequestHead, PlainPost_IsReadAsViews) {
  const std::string bytes =
      "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: api.example\r\ncontent-LENGTH:  12 \r\nX-A: "
      "1\r\nX-A:2\t\r\nX-Empty:\r\n\r\nbody";
  RequestHeadView head;
  ASSERT_EQ(RequestStatus(bytes, &head), 0);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.target, "/v1/chat/completions?x=1");
  EXPECT_EQ(head.host, "api.example");
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_EQ(head.content_length, 12u);
  EXPECT_TRUE(head.keep_alive);
  ASSERT_EQ(head.fields.size(), 5u);
  EXPECT_EQ(head.fields[2].value, "1");
  EXPECT_EQ(head.fields[3].value, "2");
  EXPECT_EQ(head.fields[4].value, "");
  EXPECT_EQ(FindField(head.fields, "HOST")->value, "api.example");
}

TEST(RequestHead, SmugglingShapes_AreRefused) {
  const std::pair<std::string, int> cases[] = {
      {Get("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
      {Get("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {Get("Content-Length: 5, 5\r\n"), 400},
      {Get("Content-Length: +5\r\n"), 400},
      {Get("Content-Length: 0x5\r\n"), 400},
      {Get("Content-Length:\r\n"), 400},
      {Get("Content-Length: 99999999999999999999\r\n"), 400},
      {Get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {Get("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {Get("Transfer-Encoding: xchunked\r\n"), 501},
      {Get("Transfer-Encoding : chunked\r\n"), 400},
      {Get("X: a\r\n folded\r\n"), 400},
      {Get("X: a\r\n\tfolded\r\n"), 400},
      {Get("X: a\nY: b\r\n"), 400},
      {Get("X: a\rb\r\n"), 400},
      {Get(std::string("X: a\0b\r\n", 8)), 400},
      {Get("no colon\r\n"), 400},
      {Get(": no name\r\n"), 400},
      {Get("Host: b\r\n"), 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
      {"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /\r\n\r\n", 400},
      {Get("Expect: 200-ok\r\n"), 417},
  };
  for (const auto& [bytes, status] : cases) EXPECT_EQ(RequestStatus(bytes), status) << bytes;
}

TEST(RequestHead, LegalVariants_AreAccepted) {
  RequestHeadView head;
  EXPECT_EQ(RequestStatus("\r\n" + Get(""), &head), 0);
  EXPECT_EQ(RequestStatus("GET http://h:1/p?q HTTP/1.1\r\nHost: h:1\r\n\r\n", &head), 0);
  EXPECT_EQ(head.target, "/p?q");
  EXPECT_EQ(RequestStatus("GET / HTTP/1.0\r\n\r\n", &head), 0);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(RequestStatus("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &head), 0);
  EXPECT_TRUE(head.keep_alive);
  EXPECT_EQ(RequestStatus(Get("Connection: x, Close\r\n"), &head), 0);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(RequestStatus(Get("Transfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n"), &head), 0);
  EXPECT_EQ(head.framing, BodyFraming::kChunked);
  EXPECT_TRUE(head.expects_continue);
  EXPECT_EQ(RequestStatus(Get("X: \x80\xff\r\n"), &head), 0);  // obs-text
}

TEST(RequestHead, SEC09_LimitsOfBytesAndFields_Give431) {
  EXPECT_EQ(RequestStatus(Get("X: " + std::string(1 << 20, 'a') + "\r\n")), 431);
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += "A: b\r\n";
  EXPECT_EQ(RequestStatus(Get(many)), 431);
  const HeadLimits limits{.max_bytes = 100, .max_fields = 3};
  EXPECT_EQ(RequestStatus(Get("A: 1\r\nB: 2\r\n"), nullptr, limits), 0);
  EXPECT_EQ(RequestStatus(Get("A: 1\r\nB: 2\r\nC: 3\r\n"), nullptr, limits), 431);
  EXPECT_EQ(RequestStatus(std::string(101, 'a'), nullptr, limits), 431);
}

TEST(HeadScanner, ByteByByte_FindsTheSameEnd) {
  const std::string bytes = Get("X: y\r\n") + "rest";
  HeadScanner scanner;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto state = scanner.Scan(std::string_view(bytes).substr(0, n));
    if (state != HeadScanner::State::kComplete) continue;
    EXPECT_EQ(scanner.head_bytes(), bytes.size() - 4);
    EXPECT_EQ(n, bytes.size() - 4);
    return;
  }
  FAIL();
}

TEST(ResponseHead, FramingFollowsRfc9112) {
  ResponseHeadView head;
  EXPECT_EQ(ResponseStatus("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", head), 0);
  EXPECT_EQ(head.framing, BodyFraming::kLength);
  EXPECT_EQ(ResponseStatus("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", head, true), 0);
  EXPECT_EQ(head.framing, BodyFraming::kNone);
  EXPECT_EQ(ResponseStatus("HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\n", head), 0);
  EXPECT_EQ(head.framing, BodyFraming::kNone);
  EXPECT_EQ(ResponseStatus("HTTP/1.1 200 \r\n\r\n", head), 0);
  EXPECT_EQ(head.framing, BodyFraming::kUntilClose);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_EQ(
      ResponseStatus("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", head),
      502);
  EXPECT_EQ(ResponseStatus("HTTP/1.1 20 OK\r\n\r\n", head), 502);
  EXPECT_EQ(ResponseStatus("HTTP/1.1 2000 OK\r\n\r\n", head), 502);
  EXPECT_EQ(ResponseStatus("ICY 200 OK and\r\n\r\n", head), 502);
}

// Decodes in pieces of the given size; "!" at the end marks a fault, "?" an unfinished body.
std::string Decode(std::string_view wire, size_t piece, std::string* rest = nullptr) {
  ChunkedDecoder decoder;
  std::string body;
  for (size_t at = 0; at < wire.size(); at += piece) {
    std::string_view input = wire.substr(at, piece);
    std::string_view data;
    ChunkedDecoder::Step step;
    while ((step = decoder.Next(input, data)) == ChunkedDecoder::Step::kData) body += data;
    if (step == ChunkedDecoder::Step::kFault) return body + "!";
    if (step == ChunkedDecoder::Step::kDone) {
      if (rest != nullptr)
        *rest = std::string(input) + std::string(wire.substr(std::min(at + piece, wire.size())));
      return body;
    }
  }
  return body + "?";
}

TEST(ChunkedDecoder, AnyCut_GivesTheSameBodyAndRest) {
  const std::string wire =
      "4\r\nWiki\r\n006;name=\"v\"\r\npedia \r\nB\r\nin\r\nchunks.\r\n0\r\nT: x\r\n\r\nGET /";
  for (size_t piece = 1; piece <= wire.size(); ++piece) {
    std::string rest;
    EXPECT_EQ(Decode(wire, piece, &rest), "Wikipedia in\r\nchunks.") << piece;
    EXPECT_EQ(rest, "GET /") << piece;
  }
}

TEST(ChunkedDecoder, BadSizesAndEnds_AreFaults) {
  for (const std::string_view wire :
       {"0x5\r\nhello\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "+5\r\nhello\r\n", "-1\r\n", "\r\nhello",
        "g\r\n", "5\nhello\r\n", "5\r\nhelloX\r\n", "5\r\nhello\n", "5\r\nhello\r0", "ffffffffffffffffff\r\n",
        "100000000000000\r\n", "5;a\nb\r\nhello\r\n", "0\r\nT: x\n\r\n", "0\r\n\rX"}) {
    for (size_t piece = 1; piece <= wire.size(); ++piece) {
      EXPECT_TRUE(Decode(wire, piece).ends_with('!')) << wire << " in pieces of " << piece;
    }
  }
  EXPECT_TRUE(Decode("5;" + std::string(300, 'e') + "\r\n", 64).ends_with('!'));
  EXPECT_TRUE(Decode("0\r\n" + std::string(9000, 't'), 64).ends_with('!'));
  EXPECT_EQ(Decode("5\r\nhello\r\n0\r\n\r", 3), "hello?");
}

TEST(ChunkedDecoder, BetweenChunks_IsTrueExactlyWhereAChunkMayStart) {
  ChunkedDecoder decoder;
  const std::string wire = "3\r\nabc\r\n2\r\nde\r\n";
  const std::string expected =
      "00000001000000"
      "1";  // after each byte
  std::string seen;
  for (const char& c : wire) {
    std::string_view input(&c, 1);
    std::string_view data;
    while (decoder.Next(input, data) == ChunkedDecoder::Step::kData) {
    }
    seen += decoder.between_chunks() ? '1' : '0';
  }
  EXPECT_EQ(seen, expected);
}

// Random edits of good heads: never a crash, and what is accepted never carries two framings.
TEST(RequestHead, RandomEdits_NeverYieldTwoFramings) {
  Random random(11);
  const std::string good =
      "POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: keep-alive\r\nX-Y: z\r\n\r\n";
  const std::string_view inserts[] = {"\r\n",
                                      "\n",
                                      ":",
                                      "Transfer-Encoding: chunked\r\n",
                                      "Content-Length: 3\r\n",
                                      " ",
                                      std::string_view("\0", 1)};
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (uint64_t edits = 1 + random.Below(3); edits > 0; --edits) {
      bytes.insert(random.Below(bytes.size()), inserts[random.Below(std::size(inserts))]);
    }
    RequestHeadView head;
    if (RequestStatus(bytes, &head) != 0) continue;
    ++accepted;
    int framings = 0;
    for (const HeaderField& field : head.fields) {
      framings += field.name == "Content-Length" || field.name == "Transfer-Encoding";
    }
    EXPECT_LE(framings, 1) << bytes;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace kvring::net
