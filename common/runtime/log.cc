#include "common/runtime/log.h"

#include <unistd.h>

#include <atomic>

#include "common/runtime/clock.h"

namespace kvring {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

void AppendValue(std::string& line, std::string_view value) {
  if (!value.empty() && value.find_first_of(" \"\n\r\t=") == std::string_view::npos) {
    line += value;
    return;
  }
  line += '"';
  for (char c : value) {
    if (c == '"' || c == '\\') line += '\\';
    line += c == '\n' || c == '\r' ? ' ' : c;
  }
  line += '"';
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

bool ParseLogLevel(std::string_view text, LogLevel& level) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warn", "error"};
  for (int i = 0; i < 4; ++i) {
    if (text == kNames[i]) {
      level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void Log(LogLevel level, std::string_view room, std::string_view event,
         std::initializer_list<LogField> fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  static constexpr std::string_view kTags[] = {" DEBUG ", " INFO ", " WARN ", " ERROR "};
  std::string line = UtcTimestamp();
  line += kTags[static_cast<int>(level)];
  line += room;
  line += ' ';
  line += event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    AppendValue(line, field.value);
  }
  line += '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace kvring
