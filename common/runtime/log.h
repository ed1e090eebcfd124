// Structured log lines on standard error: `2026-11-30T07:15:04.123Z INFO router replica up replica=r3 url=…`.
// One line per event, written with one system call, safe from any thread. Prompt text never goes here.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace kvring {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

/// A field of a log line; values with spaces or quotes are quoted.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> LogField(std::string_view k, Number v)
      : key(k), value(std::to_string(v)) {}

  std::string_view key;
  std::string value;
};

void SetLogLevel(LogLevel level);
/// "debug", "info", "warn", "error"; false for anything else.
bool ParseLogLevel(std::string_view text, LogLevel& level);
void Log(LogLevel level, std::string_view room, std::string_view event,
         std::initializer_list<LogField> fields = {});

}  // namespace kvring
