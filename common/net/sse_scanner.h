// SseScanner: finds the events in a stream of server-sent events, fed in pieces cut anywhere, by the rules of
// the WHATWG HTML standard §9.2.6: lines end with LF, CRLF or CR; a BOM is skipped at the very start; data
// lines join with one LF; comments and unknown fields are skipped; an event that is not ended by an empty
// line is never dispatched. Bytes are not decoded or changed. Not thread-safe; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace kvring::net {

struct SseEvent {
  std::string_view data;
  std::string_view type;  // of the `event` field; empty: "message"
};

class SseScanner {
 public:
  /// Larger events are skipped and counted: what a scanner keeps is bounded by it.
  explicit SseScanner(size_t max_event_bytes = 1 << 20) : max_event_bytes_(max_event_bytes) {}

  /// Views in the event are valid during the call. Events without a data line are not dispatched (standard).
  void Feed(std::string_view bytes, absl::FunctionRef<void(const SseEvent&)> on_event);

  /// Whether the bytes so far end at the border of an event, so that another event or a comment may stand
  /// here.
  bool at_border() const { return line_.empty() && !in_event_ && bom_seen_ != 1 && bom_seen_ != 2; }
  uint64_t oversized_events() const { return oversized_events_; }

 private:
  size_t SkipStart(std::string_view bytes);
  void Line(std::string_view line, bool whole, absl::FunctionRef<void(const SseEvent&)> on_event);
  void Data(std::string_view value, bool whole);
  void Dispatch(absl::FunctionRef<void(const SseEvent&)> on_event);
  void KeepView();

  size_t max_event_bytes_;
  std::string line_;       // start of a line whose end has not come
  std::string data_;       // data lines of this event that had to be kept
  std::string_view view_;  // the one data line of this event, still inside the bytes being fed
  std::string type_;
  bool has_data_ = false;
  bool has_view_ = false;
  bool in_event_ = false;  // a line of this event has come
  bool too_large_ = false;
  bool skip_lf_ = false;  // the last byte was a CR that ended a line
  int bom_seen_ = 0;      // bytes of the BOM matched; 3: past the start
  uint64_t oversized_events_ = 0;
};

}  // namespace kvring::net
