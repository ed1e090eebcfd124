// AnswerScanner: reads along while an answer is relayed, without changing a byte: usage wherever an engine
// puts it (a last chunk with `choices: []`, without choices, or beside an empty delta; or in a whole JSON
// answer), [DONE], errors inside a stream, events that are no JSON. Keeps at most one event, or the last 8
// KiB of a JSON answer; where it is told to collect the generated text, that too, and a JSON answer up to 256
// KiB. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/net/sse_scanner.h"
#include "router/fleet/outcome.h"

namespace kvring::router {

/// The counts of the last `"usage": {…}` in the JSON text; nullopt where there is none, or it has no
/// prompt_tokens.
std::optional<UsageReport> FindUsage(std::string_view json);

class AnswerScanner {
 public:
  void Begin(bool event_stream);
  /// Also keep the text of choice 0; `start`: what stands before it in the canonical prompt.
  void CollectText(std::string_view start);
  void Feed(std::span<const std::string_view> data);
  /// After the last byte. The report's text is valid until the next Begin.
  std::optional<UsageReport> usage();
  /// The collected text behind its start; empty: none, or more than text (tool calls), or too long.
  std::string_view generated();

  bool at_border() const { return sse_.at_border(); }
  bool done_seen() const { return done_seen_; }
  bool error_seen() const { return error_seen_; }
  uint64_t events() const { return events_; }
  uint64_t bad_events() const { return bad_events_; }

 private:
  void OnEvent(const net::SseEvent& event);
  void Collect(std::string_view json);

  static constexpr size_t kTailBytes = 8 << 10;
  static constexpr size_t kMostCollected = 256 << 10;

  bool event_stream_ = false;
  net::SseScanner sse_;
  std::string tail_;  // of a JSON answer
  bool collecting_ = false;
  size_t start_bytes_ = 0;
  std::string generated_;
  std::string json_;  // one event, padded for the parser; or a whole JSON answer
  std::optional<UsageReport> usage_;
  bool done_seen_ = false;
  bool error_seen_ = false;
  uint64_t events_ = 0;
  uint64_t bad_events_ = 0;
};

}  // namespace kvring::router
