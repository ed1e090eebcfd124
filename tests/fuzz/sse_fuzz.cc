// Fuzz target of the SSE scanner: against a plain reference that has the whole stream at once, for any bytes
// in any pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/net/sse_scanner.h"

namespace {

using Events = std::vector<std::string>;

// The standard's steps, one after the other: split into lines, then interpret.
Events Reference(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  std::vector<std::string> lines;
  std::string line;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\r' && bytes[i] != '\n') {
      line += bytes[i];
      continue;
    }
    if (bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n') ++i;
    lines.push_back(std::move(line));
    line.clear();
  }
  Events events;
  std::string data;
  std::string type;
  for (const std::string& text : lines) {
    if (text.empty()) {
      if (!data.empty()) events.push_back(type + "|" + data.substr(0, data.size() - 1));
      data.clear();
      type.clear();
      continue;
    }
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    std::string value = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (value.starts_with(' ')) value.erase(0, 1);
    if (name == "data") data += value + "\n";
    if (name == "event") type = value;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0] % 64;
  kvring::net::SseScanner scanner;
  Events events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const auto copy =
        std::make_unique<std::string>(bytes.substr(at, piece));  // gone after the feed: kept views are seen
    scanner.Feed(*copy, [&](const kvring::net::SseEvent& event) {
      events.push_back(std::string(event.type) + "|" + std::string(event.data));
    });
  }
  if (events != Reference(bytes)) std::abort();
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  return {
      "\x05"
      "data: {\"a\":1}\n\ndata: b\ndata: c\n\n: note\n\nevent: x\ndata:y\n\n",
      "\x01"
      "\xEF\xBB\xBF"
      "data: a\r\n\r\nid: 7\r\ndata: b\r\rretry: 5\n\ndata\n\n",
      "\x40"
      "data: [DONE]\n\n"};
}
