#include "router/gateway/answer_scanner.h"

#include <cstring>
#include <limits>

#include "common/openai/answer_text.h"

namespace kvring::router {
namespace {

size_t SkipBlanks(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
    ++at;
  return at;
}

// Offset behind `"key" :`, or npos. A key inside a string cannot match: there its quotes are escaped.
size_t ValueOf(std::string_view json, std::string_view quoted_key, size_t found) {
  const size_t colon = SkipBlanks(json, found + quoted_key.size());
  if (colon >= json.size() || json[colon] != ':') return std::string_view::npos;
  return SkipBlanks(json, colon + 1);
}

// The object that starts at `at`, braces balanced outside strings; empty if it does not end.
std::string_view ObjectAt(std::string_view json, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = at; i < json.size(); ++i) {
    if (in_string) {
      if (json[i] == '\\') {
        ++i;
      } else if (json[i] == '"') {
        in_string = false;
      }
    } else if (json[i] == '"') {
      in_string = true;
    } else if (json[i] == '{') {
      ++depth;
    } else if (json[i] == '}' && --depth == 0) {
      return json.substr(at, i + 1 - at);
    }
  }
  return {};
}

std::optional<int32_t> CountOf(std::string_view object, std::string_view quoted_key) {
  const size_t found = object.find(quoted_key);
  if (found == std::string_view::npos) return std::nullopt;
  size_t at = ValueOf(object, quoted_key, found);
  if (at == std::string_view::npos) return std::nullopt;
  int64_t value = 0;
  const size_t first = at;
  for (; at < object.size() && object[at] >= '0' && object[at] <= '9'; ++at) {
    value = value * 10 + (object[at] - '0');
    if (value > std::numeric_limits<int32_t>::max()) return std::nullopt;
  }
  return at > first ? std::optional(static_cast<int32_t>(value)) : std::nullopt;
}

}  // namespace

std::optional<UsageReport> FindUsage(std::string_view json) {
  constexpr std::string_view kKey = "\"usage\"";
  std::optional<UsageReport> last;
  size_t from = 0;
  // memmem: this runs over every event of every stream, and string_view::find is several times slower among
  // many quotes.
  while (const void* hit = ::memmem(json.data() + from, json.size() - from, kKey.data(), kKey.size())) {
    const auto found = static_cast<size_t>(static_cast<const char*>(hit) - json.data());
    from = found + kKey.size();
    const size_t at = ValueOf(json, kKey, found);
    if (at == std::string_view::npos || at >= json.size() || json[at] != '{') continue;
    const std::string_view object = ObjectAt(json, at);
    const auto prompt = CountOf(object, "\"prompt_tokens\"");
    if (!prompt) continue;
    last = UsageReport{.prompt_tokens = *prompt,
                       .completion_tokens = CountOf(object, "\"completion_tokens\"").value_or(0),
                       .cached_tokens = CountOf(object, "\"cached_tokens\"")};
  }
  return last;
}

void AnswerScanner::Begin(bool event_stream) {
  *this = AnswerScanner();
  event_stream_ = event_stream;
}

void AnswerScanner::CollectText(std::string_view start) {
  collecting_ = true;
  start_bytes_ = start.size();
  generated_ = start;
}

void AnswerScanner::Collect(std::string_view json) {
  json_.assign(json);
  collecting_ = openai::AppendAnswerText(json_, generated_) && generated_.size() <= kMostCollected;
}

std::string_view AnswerScanner::generated() {
  if (collecting_ && !event_stream_) Collect(std::string(json_));
  return collecting_ && generated_.size() > start_bytes_ ? std::string_view(generated_) : std::string_view();
}

void AnswerScanner::Feed(std::span<const std::string_view> data) {
  for (const std::string_view piece : data) {
    if (collecting_ && !event_stream_) {
      json_.append(piece);
      collecting_ = json_.size() <= kMostCollected;
    }
    if (event_stream_) {
      sse_.Feed(piece, [this](const net::SseEvent& event) { OnEvent(event); });
    } else if (piece.size() >= kTailBytes) {
      tail_.assign(piece.substr(piece.size() - kTailBytes));
    } else {
      if (tail_.size() + piece.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
      tail_.append(piece);
    }
  }
}

// An event is taken for JSON by its braces; only one that can matter is read further.
void AnswerScanner::OnEvent(const net::SseEvent& event) {
  ++events_;
  if (event.data == "[DONE]") {
    done_seen_ = true;
  } else if (!event.data.starts_with('{') || !event.data.ends_with('}')) {
    ++bad_events_;
  } else if (event.data.starts_with("{\"error\"") || event.type == "error") {
    error_seen_ = true;
  } else {
    if (auto usage = FindUsage(event.data)) usage_ = usage;
    if (collecting_) Collect(event.data);
  }
}

std::optional<UsageReport> AnswerScanner::usage() {
  std::optional<UsageReport> usage = event_stream_ ? usage_ : FindUsage(tail_);
  if (usage) usage->generated_bytes = generated();
  return usage;
}

}  // namespace kvring::router
