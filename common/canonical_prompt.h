// CanonicalPrompt: the bytes that stand for a prompt wherever prefixes are compared: the router's residency
// index, the ledger, the audit, and the replica's map from token blocks to bytes. One layout, independent of
// JSON spelling:
//
//   tools                     the raw JSON of `tools` as sent, then 0x1E          (absent: nothing)
//   each message              role 0x1F part part … [0x1D extras] 0x1E
//     text part               its text; "hi" and [{"type":"text","text":"hi"}] are equal
//     any other part          0x1D, the part's raw JSON (an image's identity is its URL or data)
//     extras                  raw JSON of name, tool_calls, tool_call_id, where present, in that order
//   a plain text prompt       its bytes alone
//
// A message's text cannot forge a border that matters: a prompt that contains 0x1E can at worst mislead the
// router's prediction, never the engine, which compares tokens. Golden vectors in the test. Pure; not
// thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvring {

/// How the record of an answer to a chat begins, as the next turn will send it: its text follows.
inline constexpr std::string_view kChatAnswerStart = "assistant\x1F";

class CanonicalPrompt {
 public:
  static constexpr char kEndOfRecord = 0x1E;
  static constexpr char kEndOfRole = 0x1F;
  static constexpr char kOpaque = 0x1D;

  void AddTools(std::string_view raw_json);
  void BeginMessage(std::string_view role);
  void AddText(std::string_view text) { bytes_.append(text); }
  void AddOpaque(std::string_view raw_json);
  void EndMessage() { bytes_.push_back(kEndOfRecord); }

  /// Offset of the next byte: where a part that is added now will begin.
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

 private:
  std::string bytes_;
};

}  // namespace kvring
